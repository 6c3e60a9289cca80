"""Which server an extraction goes through, and whether it is fit: ours, or one that somebody else started."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import sys
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.box import doctor, identity
from eagle3_remote.job import jobs
from eagle3_remote.protocol import (
    ExtractSpec,
    ForeignServer,
    ModelFact,
    Patched,
    PatchMarker,
    Phase,
    PythonFact,
    ServerStatus,
    decode,
)
from eagle3_remote.protocol.secret import is_secret
from eagle3_remote.rpc import Refused
from eagle3_remote.server import foreign, probe
from eagle3_remote.server.health import url_of
from eagle3_remote.server.launch import NO_RADIX
from eagle3_remote.server.serverinfo import ask_info, unfit_for_extra_key, unfit_settings
from eagle3_remote.serverlog import view
from eagle3_remote.serverlog.logtail import LogTail

PROBE_TOKENS = 19
_KEPT_ENV = ("EAGLE3_", "NCCL_", "SGLANG_")


@dataclasses.dataclass(frozen=True)
class Fit:
    """A server that an extraction may go through, with what fills the blanks of its spec."""

    url: str
    dump_dir: str
    python: str
    model: str
    marker: PatchMarker
    chunk: int | None
    extra_key: bool
    """Its radix cache is on: each request needs a cache key of its own."""
    version: str
    argv: tuple[str, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    job: str = ""


def fit_marker(server: ServerStatus, *, extra_key: bool = False) -> PatchMarker:
    """The marker of the writing rank, if our server is fit for an extraction.

    Args:
        extra_key: whether each request would have a cache key of its own, so that the radix cache may be on.

    Raises:
        Refused: it is not; says why.
    """
    if server.job is None or server.spec is None or server.phase in (Phase.NOT_RUNNING, Phase.EXITED, Phase.FAILED):
        raise Refused(f"No fit server runs on this box: start it first. {server.sentence}")
    if server.phase not in (Phase.READY, Phase.BUSY):
        raise Refused(f"The server is not ready yet ({server.phase.value}): wait until it is. {server.sentence}")
    markers = server.log.markers
    wanted = max((one.tp_size for one in markers), default=server.spec.tp)
    missing = sorted(set(range(wanted)) - {one.tp_rank for one in markers})
    if missing:
        raise Refused(
            f"The patch did not report itself on rank {_list(missing)} of {wanted}: the rows could be wrong. "
            "Restart the server from here."
        )
    if radix_cache_on(server):
        info = {
            name: True for name in ("enable_lmcache", "enable_flexkv") if "--" + name.replace("_", "-") in server.argv
        }
        _allow_radix(server.sglang_version, info, extra_key, load_words(server))
    return _writing(markers)


def radix_cache_on(server: ServerStatus) -> bool:
    """Whether a server of ours keeps prefixes."""
    return server.spec is not None and (server.spec.radix_cache or NO_RADIX not in server.argv)


def load_words(server: ServerStatus) -> str:
    """How long a restart would take, by the last start; empty where the log does not tell."""
    took = next((span.at for span in server.log.spans if span.phase is Phase.READY), None)
    if took is None:
        return ""
    minutes, seconds = divmod(round(took), 60)
    return f" (the last start took {f'{minutes} m ' if minutes else ''}{seconds} s)"


def own(server: ServerStatus, asked: ExtractSpec) -> Fit:
    """Our server as an extraction needs it; with the radix cache on, proven by a probe sent twice.

    Raises:
        Refused: it is not fit; says why.
        ServerFault: it did not answer the probe.
    """
    marker = fit_marker(server, extra_key=asked.extra_key)
    assert server.spec is not None
    spec = server.spec
    written = spec.env.get(layout.ENV_LAYOUT) or "safetensors"
    if written != "safetensors":
        raise Refused(
            f"The running server dumps in the layout {written!r} ({layout.ENV_LAYOUT} in its --server-env), an extraction reads "
            "'safetensors': restart it without that. Single aux and final files are made afterwards, by 'export --format pt'."
        )
    if asked.dump_dir and os.path.realpath(os.path.expanduser(asked.dump_dir)) != os.path.realpath(server.dump_dir):
        raise Refused(f"The running server dumps into {server.dump_dir}, not {asked.dump_dir}: leave --dump-dir out.")
    fit = Fit(
        url=url_of(spec.host, spec.port),
        dump_dir=server.dump_dir,
        python=spec.python,
        model=spec.model,
        marker=marker,
        chunk=server.log.chunked_prefill_size,
        extra_key=radix_cache_on(server),
        version=server.sglang_version,
        argv=server.argv,
        job="" if server.job is None else server.job.id,
    )
    if fit.extra_key:
        _prove(fit)
    return fit


def is_ours(server: ServerStatus, url: str) -> bool:
    """Whether an address (empty: none was named) is that of the server job that runs."""
    if not url:
        return True
    if server.spec is None or server.phase in (Phase.NOT_RUNNING, Phase.EXITED, Phase.FAILED):
        return False
    host, port = _address(url)
    return port == server.spec.port and _is_here(host)


def others(home: Path, asked: ExtractSpec) -> Fit:
    """A server that somebody else started, checked and proven by a probe.

    Raises:
        Refused: it is not fit; says exactly why.
        ServerFault: it did not answer the probe, or dumped nothing.
    """
    host, port = _address(asked.server_url)
    if not _is_here(host):
        raise Refused(
            f"{asked.server_url} is not on this machine: dumps are files, so the server must run on the box itself."
        )
    url = url_of(host, port)
    server = next((one for one in foreign.look(home) if one.url and _address(one.url)[1] == port), None)
    info, why = ask_info(url)
    if not info:
        raise Refused(f"No SGLang server can be used at {url}: {why}.")
    unfit = list(server.unfit) if server is not None else unfit_settings(info)
    if unfit:
        raise Refused(f"The server at {url}{_whose(server)} is not fit: {' '.join(unfit)}")
    version = str(info.get("version") or "")
    extra_key = not info.get("disable_radix_cache", False)
    if extra_key:
        _allow_radix(version, info, asked.extra_key, "")
    dump_dir = _dump_dir(asked, server, url)
    model = _model(asked, info)
    python = _python(asked, server)
    tp = info.get("tp_size")
    tp = tp if isinstance(tp, int) else 1
    marker = _log_marker(server, tp) or probe.learn(url, Path(dump_dir), tp)
    chunk = info.get("chunked_prefill_size")
    fit = Fit(
        url=url,
        dump_dir=dump_dir,
        python=python,
        model=model.path,
        marker=marker,
        chunk=chunk if isinstance(chunk, int) else None,
        extra_key=extra_key,
        version=version,
        argv=() if server is None else server.argv,
        env={} if server is None else environment_of(server.pid),
    )
    _prove(fit, model.vocab_size)
    return fit


def environment_of(pid: int) -> dict[str, str]:
    """The variables of a process that say how it serves; nothing else of its environment is copied."""
    return {
        name: value
        for name, value in (identity.environment(pid) or {}).items()
        if name.startswith(_KEPT_ENV) and not is_secret(name, value)
    }


def _prove(fit: Fit, vocab_size: int = 0) -> None:
    vocab = vocab_size or decode(ModelFact, doctor.model_fact(fit.model)).vocab_size
    if vocab <= 0:
        raise Refused(f"The vocabulary size of {fit.model} is not known: its config.json does not name it.")
    report = probe.run(fit.url, Path(fit.dump_dir), fit.marker, vocab, PROBE_TOKENS, extra_key=fit.extra_key)
    if not report.ok:
        raise Refused(f"The server at {fit.url} is not fit: {report.sentence}")
    left = [
        name for name in os.listdir(fit.dump_dir) if name.startswith(f"{layout.FOLDER_PREFIX}{layout.RID_PREFIX}probe-")
    ]
    if left:
        raise Refused(
            f"The dumps in {fit.dump_dir} belong to another user and cannot be removed from here, so that they would fill "
            "it: run this console as the user of the server, or as root."
        )


def _allow_radix(version: str, info: dict[str, Any], extra_key: bool, took: str) -> None:
    why = unfit_for_extra_key(info, version)
    if why is not None:
        raise Refused(f"The server runs with the radix cache on, which drops rows of repeated prefixes. {why}")
    if not extra_key:
        raise Refused(
            "The server runs with the radix cache on, which drops rows of repeated prefixes. Without a restart"
            f"{took}: add --extra-key, and every request is computed in full under a cache key of its own. "
            "Or restart it with the radix cache off."
        )


def _writing(markers: Sequence[PatchMarker]) -> PatchMarker:
    if len({(one.boundaries, one.final) for one in markers}) != 1:
        raise Refused("The ranks of the server report different boundaries: restart it.")
    writing = [one for one in markers if one.writes]
    if not writing:
        raise Refused("No rank of the server writes dumps: restart it from here.")
    return writing[0]


def _log_marker(server: ForeignServer | None, tp: int) -> PatchMarker | None:
    """The writing rank's marker from the log, where that may be read and has the lines of every rank.

    Where it may not, the probe alone decides: the ranks inherit one environment, so where one is patched all are.
    """
    if server is None or not server.log_path or not os.access(server.log_path, os.R_OK):
        return None
    try:
        markers = view(LogTail(Path(server.log_path)).update(), origin=None, ended=False).markers
    except OSError:
        return None
    if {one.tp_rank for one in markers} < set(range(tp)):
        return None
    return _writing(markers)


def _dump_dir(asked: ExtractSpec, server: ForeignServer | None, url: str) -> str:
    named = os.path.abspath(os.path.expanduser(asked.dump_dir)) if asked.dump_dir else ""
    told = server.dump_dir if server is not None and server.patched is Patched.YES else ""
    if named and told and os.path.realpath(named) != os.path.realpath(told):
        raise Refused(f"The server at {url} dumps into {told}, not {named}: leave --dump-dir out.")
    path = named or told
    if not path:
        raise Refused(
            f"Where the server at {url}{_whose(server)} dumps cannot be seen by this user: name it with --dump-dir."
        )
    if not os.path.isdir(path):
        raise Refused(f"The dump directory {path} of the server at {url} does not exist here: is it in a container?")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Refused(
            f"The dump directory {path} may not be read and emptied by this user: run this console as the user of the "
            "server, or as root."
        )
    return path


def _model(asked: ExtractSpec, info: dict[str, Any]) -> ModelFact:
    path = os.path.abspath(os.path.expanduser(asked.model)) if asked.model else str(info.get("model_path", ""))
    if not os.path.isabs(path):
        raise Refused(f"The server names its model {path!r}, which is no directory: name the directory with --model.")
    fact = decode(ModelFact, doctor.model_fact(path))
    if fact.error:
        raise Refused(f"The model at {path} cannot be used: {fact.error}. Name its directory with --model.")
    return fact


def _python(asked: ExtractSpec, server: ForeignServer | None) -> str:
    """An interpreter that can extract: the one named, else the server's own, else the one that this runs in."""
    candidates = [asked.python] if asked.python else [*_interpreters(server), sys.executable]
    why = ""
    for path in candidates:
        fact = decode(PythonFact, doctor.python_fact(path))
        if not fact.error and not fact.missing:
            return path
        why = why or (f"{path}: {fact.error}" if fact.error else f"{path} lacks {', '.join(fact.missing)}")
    raise Refused(f"No Python to extract with: {why}. Name one that has torch, safetensors and httpx with --python.")


def _interpreters(server: ForeignServer | None) -> list[str]:
    """Where the server's own Python lies: as its command line names it, a bare name looked up as the server would."""
    if server is None:
        return []
    path = (identity.environment(server.pid) or {}).get("PATH")
    found = []
    for word in server.argv[:2]:
        name = os.path.join(os.path.dirname(word), "python") if os.path.basename(word) == "sglang" else word
        if os.path.basename(name).startswith("python"):
            found.append(name if os.path.isabs(name) else shutil.which(name, path=path))
    return [one for one in found if one]


def _whose(server: ForeignServer | None) -> str:
    return "" if server is None else f" (pid {server.pid}, user {server.user})"


def _address(url: str) -> tuple[str, int]:
    """Host and port of ``http://host:port`` or ``host:port``.

    Raises:
        Refused: it is none.
    """
    wrong = Refused(f"The server address {url!r} is not of the form http://HOST:PORT.")
    try:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        port = parts.port or foreign.DEFAULT_PORT
    except ValueError:
        raise wrong from None
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
        raise wrong
    return parts.hostname, port


def _is_here(host: str) -> bool:
    """Whether `host` is an address of this machine: only such a one can be bound."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a label that is empty or longer than 63 characters
        return False
    for family, kind, protocol, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as one:
            one.bind(address)
            return True
    return False


def busy_with(home: Path, url: str) -> jobs.Job | None:
    """The extraction job that goes through a server at this address now."""
    port = _address(url)[1] if url else 0
    for job in jobs.living(home, "extract"):
        message = job.spec["message"]
        more = message.get("servers") or []
        for one in [message.get("server_url", ""), *(server.get("url", "") for server in more)]:
            with contextlib.suppress(Refused):
                if _address(str(one))[1] == port:
                    return job
    return None


def _list(values: Any) -> str:
    return ", ".join(str(one) for one in values)
