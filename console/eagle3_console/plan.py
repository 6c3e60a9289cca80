"""What a person asks for, from the command line or the screen, before the box was looked at."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from eagle3_remote.protocol import DoctorQuery, ExtractServer, ExtractSpec, ServerSpec


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run: model, data and output are paths on the box."""

    model: str = ""
    data: str = ""
    out: str = ""
    python: str = ""
    """The Python that has SGLang; empty: look for it."""
    tp: int = 1
    port: int = 30000
    boundaries: tuple[int, ...] = ()
    final: str = ""
    """``pre`` or ``post``; empty: pre for a new server, the server's for an extraction."""
    dump_dir: str = ""
    max_seq_len: int = 0
    samples: int = 0
    """Only the first so many; 0: all."""
    tokens_in_flight: int = 0
    on_bad: str = "skip"
    duplicates: str = "keep"
    shuffle: int | None = None
    shard: str = ""
    """``i/n``: this part of the input alone."""
    server_args: tuple[str, ...] = ()
    server_env: dict[str, str] = dataclasses.field(default_factory=dict)
    api_key: str = dataclasses.field(default="", repr=False)
    """What the server asks of who sends it requests; empty: nothing."""
    server_url: str = ""
    """A server that somebody else started; empty: the server job."""
    extra_key: bool = False
    """Give every request a cache key of its own, where the running server has the radix cache on."""
    share_gpus: bool = False
    watch: bool = False
    """Have the box start a crashed server again while an extraction runs."""
    servers: tuple[str, ...] = ()
    """URLs of further patched servers on the box, for the same extraction."""
    on_trouble: str = "stop"
    """What three failures of one kind in a row do: ``stop`` where somebody waits for the exit code, else ``pause``."""
    ready_within: float = 3600.0
    """Seconds without any progress of the loading server after which it counts as stuck."""
    said: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    """Which of these the command line or its profile named: a default that was named wins over the last server's value."""

    profile: str = dataclasses.field(default="", compare=False)
    """The person's own profile that it was read from, by name; empty: none."""

    def query(self) -> DoctorQuery:
        """What the doctor shall look at."""
        return DoctorQuery(
            python=self.python, model=self.model, data=self.data, out=self.out, dump_dir=self.dump_dir, port=self.port
        )

    def server(self, python: str) -> ServerSpec:
        """The server this plan needs."""
        return ServerSpec(
            model=self.model,
            python=python,
            port=self.port,
            tp=self.tp,
            boundaries=self.boundaries,
            final=self.final or "pre",
            dump_dir=self.dump_dir,
            tokens_in_flight=self.tokens_in_flight,
            share_gpus=self.share_gpus,
            extra_args=(*self.server_args, *(("--api-key", self.api_key) if self.api_key else ())),
            env=self.server_env,
        )

    def extract(self) -> ExtractSpec:
        """The extraction this plan needs; the agent fills in what the running server decides."""
        return ExtractSpec(
            data=self.data,
            out=self.out,
            boundaries=self.boundaries,
            final=self.final,
            max_seq_len=self.max_seq_len,
            limit=self.samples,
            tokens_in_flight=self.tokens_in_flight,
            on_bad=self.on_bad,
            duplicates=self.duplicates,
            shuffle=self.shuffle,
            shard=self.shard,
            server_url=self.server_url,
            api_key=self.api_key if self.server_url else "",
            dump_dir=self.dump_dir if self.server_url else "",
            model=self.model if self.server_url else "",
            python=self.python if self.server_url else "",
            extra_key=self.extra_key,
            servers=tuple(ExtractServer(url, "") for url in self.servers),
            on_trouble=self.on_trouble,
        )

    def on_cpu(self) -> bool:
        """Whether the server was asked to run without a GPU (``--device cpu`` among the server arguments)."""
        args = self.server_args
        return "--device=cpu" in args or any(a == "--device" and b == "cpu" for a, b in itertools.pairwise(args))


def restart_plan(plan: Plan, last: ServerSpec, *, watched: bool = False) -> Plan:
    """The last server's own settings, except where `plan` names another: an argument or a variable more is added to the
    last ones, and wins over the one of its name.

    Args:
        watched: the box was asked to start the last server again when it crashes.
    """
    host = ("--host", last.host) if last.host != ServerSpec.host else ()  # a plan has no other word for it
    return dataclasses.replace(
        plan,
        model=plan.model or last.model,
        python=plan.python or last.python,
        tp=plan.tp if "tp" in plan.said or plan.tp != Plan.tp else last.tp,
        port=plan.port if "port" in plan.said or plan.port != Plan.port else last.port,
        boundaries=plan.boundaries or last.boundaries,
        final=plan.final or last.final,
        dump_dir=plan.dump_dir if "dump_dir" in plan.said else plan.dump_dir or last.dump_dir,
        tokens_in_flight=plan.tokens_in_flight
        if "tokens_in_flight" in plan.said or plan.tokens_in_flight
        else last.tokens_in_flight,
        share_gpus=plan.share_gpus or last.share_gpus,
        server_args=plan.server_args
        if "server_args" in plan.said
        else _merged((*host, *last.extra_args), plan.server_args, ("--api-key",) if plan.api_key else ()),
        server_env={**last.env, **plan.server_env},
        watch=plan.watch or watched,
    )


def _merged(last: Sequence[str], said: Sequence[str], without: Sequence[str] = ()) -> tuple[str, ...]:
    """The arguments `last`, without those in `without` and the options that `said` names (each with its values), and then
    `said`."""
    named = {*without, *(word.partition("=")[0] for word in said if word.startswith("--"))}
    kept, keep = [], True
    for word in last:
        if word.startswith("--"):
            keep = word.partition("=")[0] not in named
        if keep:
            kept.append(word)
    return (*kept, *said)
