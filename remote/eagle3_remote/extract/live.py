"""Stored rows held against their model: its final norm, and a live server that computes them again."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import probes, space
from eagle3_remote.extract.client import Client, ServerAway
from eagle3_remote.extract.collect import file_name
from eagle3_remote.extract.errors import ExtractionError, SampleFailure
from eagle3_remote.extract.facts import check_server, longest_prompt, read_model
from eagle3_remote.extract.records import Entry
from eagle3_remote.extract.scan import to_float32
from eagle3_remote.extract.statesfile import ITEM_BYTES, Header, read_header, read_ids
from eagle3_remote.extract.weights import NoWeights, read_ends
from eagle3_remote.protocol import ProbeAnswer, Problem

_ROWS = 16
_AGAIN = 8
"""Samples that a live server computes again."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A live server."""

    url: str
    dump_dir: str
    extra_key: bool = False


def norm_problems(
    dataset: ds.Dataset, manifest: dict[str, Any], entries: Sequence[Entry]
) -> tuple[list[Problem], list[str]]:
    """(what is wrong, what could not be checked) about the declared side of the final norm."""
    import numpy

    path, final = str(manifest.get("model", {}).get("path", "")), manifest.get("final")
    if final not in ("pre", "post") or not entries:
        return [], []
    try:
        if read_model(path).fingerprint != manifest.get("model", {}).get("fingerprint"):
            return [], [f"The final norm: {path} holds another model by now."]
        ends = read_ends(path)
    except (ExtractionError, NoWeights) as error:
        return [], [f"The final norm: {str(error).rstrip('.')}."]
    rows = [found for entry in entries if (found := _final_rows(dataset, entry)) is not None]
    if not rows or rows[0].shape[1] != len(ends.norm):
        return [], []
    wrong = probes.wrong_norm(ends, numpy.concatenate(rows), final)
    return ([Problem("manifest.json", "norm", wrong.rstrip("."))], []) if wrong else ([], [])


def _final_rows(dataset: ds.Dataset, entry: Entry) -> Any:
    """float32 final states of some tokens of one file; `None` where it cannot be read, which is said elsewhere."""
    import numpy

    try:
        header, words = stored_rows(os.path.join(dataset.states, file_name(entry.row)))
    except (OSError, ValueError):
        return None
    return to_float32(numpy, words[:: max(1, len(words) // _ROWS), -1], header.dtype)


def stored_rows(path: str) -> tuple[Header, Any]:
    """A file's header and its words ``[tokens, layers, hidden]``, mapped.

    Raises:
        OSError, ValueError: it is no whole file of hidden states.
    """
    import numpy

    header = read_header(path)
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r")[slice(*header.hidden)]
    return header, data.view("<u4" if ITEM_BYTES[header.dtype] == 4 else "<u2").reshape(header.shape)


def check(
    dataset: ds.Dataset, manifest: dict[str, Any], entries: Sequence[Entry], place: Place
) -> tuple[list[Problem], list[ProbeAnswer]]:
    """(stored rows that the server computes otherwise, its probes)."""
    try:
        return asyncio.run(_check(dataset, manifest, entries, place))
    except (ExtractionError, ServerAway, OSError, ValueError, KeyError) as error:
        reason = f"the server at {place.url} could not be asked: {str(error).rstrip('.')}"
        return [Problem(dataset.root, "server", reason)], []


async def _check(
    dataset: ds.Dataset, manifest: dict[str, Any], entries: Sequence[Entry], place: Place
) -> tuple[list[Problem], list[ProbeAnswer]]:
    client = Client(place.url, extra_key=place.extra_key)
    try:
        model = read_model(str(manifest["model"]["path"]))
        if model.fingerprint != manifest["model"]["fingerprint"]:
            raise ExtractionError(f"{model.path} holds another model than the dataset was made with")
        server = await client.facts(model)
        check_server(server, model)
        boundaries = tuple(manifest["boundaries"])
        longest = longest_prompt(server)[0]
        question = probes.Question(
            client=client,
            dump_dir=place.dump_dir,
            model=model.path,
            boundaries=boundaries,
            final=str(manifest["final"]),
            chunk=server.chunk,
            longest=longest,
            shape=space.Shape(len(boundaries) + 1, model.hidden_size, 4),
        )
        chosen = [entry for entry in entries if entry.tokens <= longest and _ids(dataset, entry)]
        chosen = chosen[:: max(1, len(chosen) // _AGAIN)][:_AGAIN]
        found = await _again(dataset, chosen, question)
        samples = [_ids(dataset, entry) for entry in chosen]
        ids = probes.material(samples, probes.tokens_needed(server.chunk))
        return found, await probes.ask(question, ids) if ids else []
    finally:
        await client.close()


async def _again(dataset: ds.Dataset, entries: Sequence[Entry], question: probes.Question) -> list[Problem]:
    """The rows of stored samples once more, and what differs."""
    problems = []
    prober = probes.Prober(question)
    for entry in entries:
        where = file_name(entry.row)
        try:
            header, words = stored_rows(os.path.join(dataset.states, where))
            dumped = await prober.send(_ids(dataset, entry))
            if dumped.header.shape != header.shape:
                text = f"it has {list(header.shape)} states, the server's are {list(dumped.header.shape)}"
                problems.append(Problem(where, "server-differs", text))
            else:
                stored = probes.Dumped("", header, words, dumped.answer)
                answer = await asyncio.to_thread(probes.compared, where, [(stored, dumped)])
                if answer.result == "failed":
                    problems.append(Problem(where, "server-differs", answer.sentence.rstrip(".")))
        except SampleFailure as failure:
            problems.append(Problem(where, f"server: {failure.kind}", str(failure)))
        finally:
            prober.clean()
    return problems


def _ids(dataset: ds.Dataset, entry: Entry) -> list[int]:
    """The ids in its file; empty where those are not what was sent: a server may die of them."""
    path = os.path.join(dataset.states, file_name(entry.row))
    try:
        raw = read_ids(path, read_header(path))
    except (OSError, ValueError):
        return []
    return list(array.array("q", raw)) if hashlib.blake2b(raw, digest_size=16).digest() == entry.fingerprint else []
