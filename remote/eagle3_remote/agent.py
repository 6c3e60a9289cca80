"""The agent: one process a connection, speaks JSON-RPC lines on its standard streams, owns nothing.

Started as ``PY -I -c "import sys; sys.path.insert(0, '<release>'); from eagle3_remote.agent import main; main()"``.
The first line it writes is the notification ``ready``; what an rc file printed stands before it. A second argument may
hold the first requests, a line each. It ends when its standard input ends, or when its console is not heard for
long: behind a link that vanished without a word its input never ends. Jobs go on.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from eagle3_remote import __version__
from eagle3_remote.array.control import ArrayControl
from eagle3_remote.box import doctor, identity, releases
from eagle3_remote.box.complete import complete
from eagle3_remote.box.gauges import GaugeReader
from eagle3_remote.box.home import box_home
from eagle3_remote.box.looks import Looker
from eagle3_remote.disk import look
from eagle3_remote.disk.control import ReclaimControl
from eagle3_remote.export.exporting import ExportControl
from eagle3_remote.extract import rates
from eagle3_remote.extract.extraction import ExtractControl
from eagle3_remote.extract.merging import MergeControl
from eagle3_remote.job import cleaning, jobs, work
from eagle3_remote.once import once
from eagle3_remote.protocol import (
    NO_RELEASE,
    PROTOCOL_VERSION,
    ArraySpec,
    ArrayStatus,
    BenchReport,
    BenchSpec,
    CleanSpec,
    ExportSpec,
    ExtractSpec,
    ExtractStatus,
    ExtractWish,
    Hello,
    LogChunk,
    LookQuery,
    MergeSpec,
    PathQuery,
    ReclaimSpec,
    ServerSpec,
    Snapshot,
    SpaceQuery,
    VerifyQuery,
    VocabMapSpec,
    decode,
    encode,
)
from eagle3_remote.rpc import BadParams, Connection, Refused
from eagle3_remote.server import attach, bench, probe
from eagle3_remote.server.control import ServerControl
from eagle3_remote.server.foreigncalls import ForeignCalls
from eagle3_remote.server.health import url_of
from eagle3_remote.server.metrics import MetricsReader
from eagle3_remote.server.serverinfo import extra_key_works
from eagle3_remote.server.status import StatusReader
from eagle3_remote.serverlog.logtail import read_chunk
from eagle3_remote.steering import Console, Lease

T = TypeVar("T")

FORGOTTEN = 900.0
"""Seconds without a word from the console after which the agent ends; a console that still lives starts another one."""

FINISH = (
    "server.start",
    "server.stop",
    "server.stop_foreign",
    "extract.start",
    "extract.stop",
    "extract.control",
    "space.reclaim",
    "export",
    "export.stop",
    "space.stop",
    "array.submit",
    "array.stop",
    "merge",
    "jobs.clean",
)
"""Calls that change the box: finished even when the console is gone meanwhile."""


CHANGES = (
    *FINISH,
    "server.watch",
    "server.probe",
    "server.bench",
    "server.stack",
    "extract.plan",
    "vocab-map",
    "verify",
)
"""Calls that change the box or give its server work: one console at a time makes them."""


class Agent:
    """The methods of `eagle3_remote.protocol`.

    Args:
        home: the box folder.
        release: the folder that holds ``eagle3_remote`` and ``eagle3_patch``.
    """

    def __init__(self, home: Path, release: Path) -> None:
        self._home = home
        self._status = StatusReader(home)
        self._gauges = GaugeReader()
        self._metrics = MetricsReader()
        self._server = ServerControl(home, release)
        self._extract = ExtractControl(home, release)
        self._reclaim = ReclaimControl(home, release)
        self._export = ExportControl(home, release)
        self._foreign = ForeignCalls(home)
        self._merge = MergeControl(home, release)
        self._array = ArrayControl(home, release)
        self._looker = Looker(home, release)
        self._lease = Lease(home)
        self._console = Console()
        self._take_over = False

    def methods(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        """Name -> handler, for `Connection`."""
        every = self._methods()
        return {**every, **{name: self._steered(name, every[name]) for name in CHANGES}}

    def _steered(self, method: str, handler: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        def call(params: Mapping[str, Any]) -> Any:
            if not _only_asks(method, params):
                self._lease.claim(self._console, take_over=self._take_over)
                self._take_over = False  # once: who is taken over from then on is asked again
            return handler(params)

        return call

    def _methods(self) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
        return {
            "hello": self.hello,
            "snapshot": self.snapshot,
            "doctor": lambda params: doctor.look(dict(params)),
            "path.complete": lambda params: encode(complete(_message(PathQuery, params))),
            "path.look": lambda params: encode(self._looker.look(_message(LookQuery, params))),
            "server.plan": lambda params: encode(self._server.plan(_message(ServerSpec, params))),
            "server.start": lambda params: encode(self._server.start(_message(ServerSpec, params))),
            "server.stop": lambda params: encode(self._server.stop(_maybe(params, "job"))),
            "server.stack": lambda params: encode(self._server.stack(_maybe(params, "job"))),
            "server.watch": lambda params: self._server.watch(_maybe(params, "job"), _need(params, "on", bool)),
            "server.probe": self.probe,
            "server.bench": lambda params: encode(
                bench.measure(self._home, _message(BenchSpec, params), self._status.server)
            ),
            "server.bench_kept": lambda params: encode(
                BenchReport(None, tuple(bench.kept(self._home)), str(bench.path_of(self._home)))
            ),
            "server.foreign": lambda params: encode(self._foreign.listing()),
            "server.stop_foreign": lambda params: encode(
                self._foreign.stop(_need(params, "pid", int), _need(params, "confirm", str))
            ),
            "extract.start": self.extract_start,
            "extract.plan": lambda params: self._extract.plan(_message(ExtractSpec, params), self._status.server()),
            "extract.plan_kept": lambda params: encode(rates.kept(self._home, _need(params, "model", str))),
            "extract.stop": lambda params: encode(self._extract.stop(_maybe(params, "job"))),
            "extract.control": lambda params: encode(self._extract.control(_message(ExtractWish, params))),
            "verify": lambda params: self._extract.verify(
                _message(VerifyQuery, params), self._status.server, only_look=self._console.readonly
            ),
            "report": lambda params: self._extract.report(_maybe(params, "job")),
            "space": lambda params: encode(look.look(self._home, _message(SpaceQuery, params))),
            "space.stop": lambda params: encode(self._reclaim.stop(_need(params, "path", str))),
            "space.reclaim": lambda params: encode(self._reclaim.start(_message(ReclaimSpec, params))),
            "export": lambda params: encode(self._export.start(_message(ExportSpec, params))),
            "export.stop": lambda params: encode(self._export.stop(_message(ExportSpec, params))),
            "vocab-map": lambda params: self._export.vocab_map(_message(VocabMapSpec, params)),
            "merge": lambda params: encode(self._merge.start(_message(MergeSpec, params))),
            "array.submit": self.array_submit,
            "array.status": lambda params: encode(self._array.status(_maybe(params, "out"))),
            "array.stop": lambda params: encode(self._array.stop(_maybe(params, "out"))),
            "work": lambda params: encode(work.status(self._home, _need(params, "job", str))),
            "jobs.list": self.jobs_list,
            "jobs.records": lambda params: encode(cleaning.records(self._home)),
            "jobs.show": lambda params: encode(
                cleaning.show(self._home, _need(params, "job", str), _need(params, "lines", int))
            ),
            "jobs.clean": lambda params: encode(cleaning.clean(self._home, _message(CleanSpec, params))),
            "steer.take": lambda params: self.steer(take=True),
            "steer.release": lambda params: self.steer(take=False),
            "releases.clean": self.releases_clean,
            "log.read": self.log_read,
        }

    def hello(self, params: Mapping[str, Any]) -> Any:
        """The handshake.

        Raises:
            Refused: the console speaks another protocol.
        """
        wanted = _need(params, "protocol", int)
        if wanted != PROTOCOL_VERSION:
            raise Refused(
                f"This release speaks protocol {PROTOCOL_VERSION}, the console {wanted}: let the console deploy its own."
            )
        name = _maybe(params, "console")
        if name is not None:  # a greeting that only looks whether we live says nothing of who greets
            self._console = Console(name, _need(params, "id", str), _need(params, "readonly", bool))
            self._take_over = _need(params, "take_over", bool)
        return encode(
            Hello(
                protocol=PROTOCOL_VERSION,
                version=__version__,
                boot_id=identity.boot_id(),
                pid=os.getpid(),
                user=_user(),
                host=socket.gethostname(),
                home=str(self._home),
                python=f"{sys.executable} {platform.python_version()}",
                clock=time.time(),
            )
        )

    def steer(self, *, take: bool) -> str:
        """Steer from this console, or leave it to others. A sentence."""
        if take:
            self._lease.claim(self._console, take_over=True)
            return "This console steers now."
        self._lease.release(self._console)
        return "This console does not steer."

    def snapshot(self, params: Mapping[str, Any]) -> Any:
        """The whole truth: box, server, extraction."""
        server = self._status.server()
        server = dataclasses.replace(
            server, metrics=self._metrics.read(server), extra_key=extra_key_works(server.sglang_version)
        )
        given = params.get("paths") or {}
        if not isinstance(given, dict) or not all(isinstance(path, str) for path in given.values()):
            raise BadParams("paths must map labels to paths")
        paths = {str(label): path for label, path in given.items() if path}
        paths.setdefault("dump", server.dump_dir or "/dev/shm")
        paths.setdefault("home", str(self._home))
        extract = self._status.extract()
        if extract is not None and extract.spec is not None:
            paths.setdefault("output", extract.spec.out)
        array = self._newest_array(extract)
        if array is not None:
            extract = array.total
        steering = self._lease.look(self._console)
        return encode(
            Snapshot(time.time(), self._gauges.read(paths), server, extract, self._foreign.seen(), array, steering)
        )

    def _newest_array(self, extract: ExtractStatus | None) -> ArrayStatus | None:
        """The last array, where no extraction was started on this box itself since."""
        submitted = self._array.submitted_at()
        started = extract.job.started_at if extract is not None and extract.job is not None else None
        if submitted is None or (started is not None and started > submitted):
            return None
        try:
            return self._array.brief()
        except Refused:
            return None  # its folder was removed

    def array_submit(self, params: Mapping[str, Any]) -> Any:
        """Submit a Slurm array from this host."""
        spec = _message(ArraySpec, _need(params, "spec", dict))
        return encode(self._array.submit(spec, _need(params, "dry_run", bool)))

    def probe(self, params: Mapping[str, Any]) -> Any:
        """One checked request through the patched server."""
        tokens = _need(params, "tokens", int)
        server = self._status.server()
        marker = attach.fit_marker(server, extra_key=True)
        assert server.spec is not None
        assert server.job is not None
        job = jobs.find(self._home, server.job.id)
        vocab = 0 if job is None else int(job.spec.get("model", {}).get("vocab_size", 0))
        limit = server.log.context_len or 1 << 17
        if not 0 < tokens < limit - 1:
            raise Refused(f"A probe of {tokens} tokens does not fit: 1 to {limit - 2} are possible.")
        if vocab <= 0:
            raise Refused(f"The vocabulary size of {server.spec.model} is not known: its config.json does not name it.")
        url = url_of(server.spec.host, server.spec.port)
        extra_key = attach.radix_cache_on(server)
        return encode(probe.run(url, Path(server.dump_dir), marker, vocab, tokens, extra_key=extra_key))

    def extract_start(self, params: Mapping[str, Any]) -> Any:
        """Start an extraction through the server that runs."""
        return encode(self._extract.start(_message(ExtractSpec, params), self._status.server()))

    def jobs_list(self, params: Mapping[str, Any]) -> Any:
        """All jobs, newest first."""
        return [encode(jobs.status_of(job)) for job in jobs.everything(self._home, _maybe(params, "kind"))]

    def releases_clean(self, params: Mapping[str, Any]) -> Any:
        """Remove the releases that nothing uses: part of a deploy, for which nobody has to steer."""
        self._lease.refuse_watchers(self._console)
        return [path.name for path in releases.collect(self._home)]

    def log_read(self, params: Mapping[str, Any]) -> Any:
        """Bytes of one job's log."""
        job = jobs.find(self._home, _need(params, "job", str))
        if job is None:
            raise Refused(f"There is no job {params['job']} on this box.")
        inode, offset, limit = (_need(params, name, int) for name in ("inode", "offset", "limit"))
        try:
            return encode(read_chunk(job.log_path, inode, offset, limit))
        except FileNotFoundError:
            return encode(LogChunk(0, 0, "", 0, 0))  # the job has only just been made
        except OSError as error:
            raise Refused(f"The log {job.log_path} cannot be read: {error.strerror}.") from error


def _message(kind: type[T], params: Mapping[str, Any]) -> T:
    try:
        return decode(kind, dict(params))
    except ValueError as error:
        raise BadParams(str(error)) from error


def _only_asks(method: str, params: Mapping[str, Any]) -> bool:
    """Whether one of `CHANGES` changes nothing this time; a dataset is checked without a server by reading it."""
    if method == "verify":
        return not params.get("server")
    return params.get("dry_run") is True or params.get("go") is False


def _need(params: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = params.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadParams(f"{name}: {kind.__name__} is needed")
    return value


def _maybe(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise BadParams(f"{name}: str or null is needed")
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _end_when_forgotten(connection: Connection) -> None:
    while connection.quiet() < FORGOTTEN:
        time.sleep(FORGOTTEN / 20)
    os._exit(0)


def main() -> None:
    """Serve one console on standard input and output."""
    # Whatever prints from now on prints to standard error: the answers' channel carries nothing else.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    release = Path(__file__).resolve().parent.parent
    try:
        releases.hold(release)  # until we end: whoever removes unused releases sees it
    except releases.Removed:
        os._exit(NO_RELEASE)
    home = box_home()
    agent = Agent(home, release)
    # Requests that came with the command save who is far away a round trip.
    first = "".join(sys.argv[2:3]).encode().splitlines()
    connection = Connection(agent.methods(), FINISH, lambda key, call: once(home, key, call))
    threading.Thread(target=_end_when_forgotten, args=(connection,), name="forgotten", daemon=True).start()
    connection.serve(source, out, first)
    os._exit(0)  # reads that were abandoned with the console do not hold the process
