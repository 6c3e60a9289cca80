"""Several servers behind one extraction, each with its own dump directory on this box."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from eagle3_remote.extract.client import Client, ServerAway
from eagle3_remote.extract.collect import can_rename
from eagle3_remote.extract.errors import EXIT_SERVER, ExtractionError
from eagle3_remote.extract.facts import check_server, longest_prompt, served_dtype
from eagle3_remote.extract.lane import Lane
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.protocol import ExtractSpec


def urls(spec: ExtractSpec) -> list[str]:
    """One a server."""
    return [spec.server_url, *(more.url for more in spec.servers)]


def dump_dirs(spec: ExtractSpec) -> list[str]:
    """One a server, in the order of `urls`."""
    return [spec.dump_dir, *(more.dump_dir for more in spec.servers)]


async def join_servers(plan: Plan, further: Sequence[Client]) -> Plan:
    """The plan for all servers together: the shortest limit of any holds.

    Raises:
        ExtractionError: one is not there, serves another model, or has no dump directory of its own.
    """
    _check_dump_dirs(dump_dirs(plan.spec))
    rules = plan.rules
    for client in further:
        try:
            server = await client.facts(plan.model)
        except ServerAway as error:
            text = f"No SGLang server answers at {client.url} ({error}): start it first."
            raise ExtractionError(text, EXIT_SERVER) from None
        check_server(server, plan.model)
        if served_dtype(server, plan.model) != served_dtype(plan.server, plan.model):
            raise ExtractionError(f"The server at {client.url} computes in another dtype than the first one.")
        limit, why = longest_prompt(server)
        if limit < rules.max_tokens:
            rules = dataclasses.replace(rules, max_tokens=limit, max_tokens_why=why)
    return dataclasses.replace(plan, rules=rules)


def _check_dump_dirs(places: Sequence[str]) -> None:
    for place in places:
        if not os.path.isdir(place):
            raise ExtractionError(f"The dump directory {place!r} does not exist: it is made by the patched server.")
    if len({os.path.realpath(place) for place in places}) < len(places):
        raise ExtractionError("Two servers name one dump directory: each needs its own.")


def lanes_of(plan: Plan, clients: Sequence[Client], tuning: Tuning) -> list[Lane]:
    """What the flow sends through."""
    return [
        Lane(plan, client, dump_dir, can_rename(dump_dir, plan.dataset.states), tuning)
        for client, dump_dir in zip(clients, dump_dirs(plan.spec), strict=True)
    ]
