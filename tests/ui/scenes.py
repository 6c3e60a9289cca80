"""Snapshots as an agent would send them, and a scripted stand-in for the controller."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable

from eagle3_console.events import (
    CONNECTED,
    Alert,
    AlertRaised,
    Connection,
    ConnectionChanged,
    Event,
    LogArrived,
    Narration,
    Planned,
    SnapshotArrived,
    StepChanged,
    WorkSeen,
)
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.controller import LossyAction
from eagle3_remote.protocol import (
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    Gauges,
    Gpu,
    JobState,
    JobStatus,
    Mount,
    PatchMarker,
    Phase,
    PhaseSpan,
    ServerLog,
    ServerSpec,
    ServerStatus,
    Snapshot,
    VerifyReport,
    WorkState,
    WorkStatus,
)

NOW = 1_800_000_000.0
TARGET = "root@gpu-box"
SPEC = ServerSpec(model="/models/kimi-k2.5", python="/venv/bin/python", tp=8, boundaries=(2, 30, 58))


def job(kind: str, state: JobState = JobState.RUNNING, rc: int | None = None, log_size: int = 1000) -> JobStatus:
    name = f"{kind}-20270115t080000-3f2a"
    run = f"/root/.eagle3-console/runs/{name}"
    return JobStatus(name, kind, state, 84198, rc, NOW - 3000, None, run, f"{run}/out.log", log_size, 77)


def markers(count: int, of: int = 8) -> tuple[PatchMarker, ...]:
    return tuple(
        PatchMarker("1.0", "0.5.9", "DeepseekV3ForCausalLM", 61, 7168, (2, 30, 58), "pre", rank, of, rank == 0)
        for rank in range(count)
    )


SPANS = (
    PhaseSpan(Phase.SPAWNING, 0.0),
    PhaseSpan(Phase.INITIALISING, 3.0),
    PhaseSpan(Phase.LOADING_WEIGHTS, 15.0),
    PhaseSpan(Phase.ALLOCATING_KV_CACHE, 536.0),
    PhaseSpan(Phase.HTTP_UP, 545.0),
    PhaseSpan(Phase.WARMING_UP, 547.0),
    PhaseSpan(Phase.READY, 552.0),
)


def gauges(output_free: int = 1_700_000_000_000, dump_free: int = 495_000_000_000, gpus: int = 8) -> Gauges:
    return Gauges(
        host="gpu-box",
        cpus=128,
        load1=12.25,
        ram_total=2_160_000_000_000,
        ram_available=1_490_000_000_000,
        mounts=(
            Mount("output", "/data", 4_400_000_000_000, output_free, 9_000_000),
            Mount("dump", "/dev/shm", 504_000_000_000, dump_free, 5_000_000),
            Mount("home", "/", 100_000_000_000, 60_000_000_000, 5_000_000),
        ),
        gpus=tuple(Gpu(i, "NVIDIA H200", (88 + i) << 30, 141 << 30, 93, 60 + i) for i in range(gpus)),
    )


READY = ServerStatus(
    phase=Phase.BUSY,
    sentence="ready and working",
    job=job("server"),
    spec=SPEC,
    dump_dir="/dev/shm/eagle3-console/server",
    sglang_version="0.5.9",
    log=ServerLog(
        phase=Phase.BUSY,
        spans=SPANS,
        shards_done=64,
        shards_total=64,
        model_class="DeepseekV3ForCausalLM",
        max_total_tokens=406_528,
        chunked_prefill_size=16_384,
        markers=markers(8),
        prefill_tps=20_412.5,
        running_requests=8,
        queued_requests=31,
        last_line="Prefill batch, #new-seq: 8",
    ),
    uptime=2999.0,
    health_ms=1042.0,
)
LOADING = dataclasses.replace(
    READY,
    phase=Phase.LOADING_WEIGHTS,
    sentence="loading weights",
    log=ServerLog(
        phase=Phase.LOADING_WEIGHTS,
        spans=SPANS[:3],
        shards_done=31,
        shards_total=64,
        shard_rate="8.14s/it",
        shard_eta="04:28",
        last_line="Loading safetensors checkpoint shards:  48% Completed | 31/64 [04:12<04:28,  8.14s/it]",
    ),
    uptime=267.0,
    health_ms=None,
)
FAILED = dataclasses.replace(
    LOADING,
    phase=Phase.FAILED,
    sentence="the server ended with exit code 1 while it loaded the weights",
    job=job("server", JobState.FINISHED, rc=1),
    log=dataclasses.replace(
        LOADING.log,
        phase=Phase.FAILED,
        failure="cuda_oom",
        root_cause="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 3 has a total capacity "
        "of 139.72 GiB of which 1.12 GiB is free.",
        advice="Another process holds memory of GPU 3: end it, or give the server less with --mem-fraction-static 0.8.",
    ),
)
RUNNING = ExtractStatus(
    state=ExtractState.RUNNING,
    sentence="sending",
    job=job("extract"),
    spec=ExtractSpec(data="/data/tokenized_data.jsonl", out="/data/hidden/kimi"),
    total=10_000,
    stored=3_731,
    rejected=2,
    in_flight=38,
    tokens_in_flight=61_004,
    tokens_total=17_300_000,
    tokens_stored=6_455_000,
    bytes_stored=370_200_000_000,
    bytes_total=992_000_000_000,
    samples_per_s=11.8,
    tokens_per_s=20_400.0,
    bytes_per_s=1_130_000_000.0,
    mean_samples_per_s=10.9,
    elapsed=342.0,
    eta=5407.0,
)
FINISHED = dataclasses.replace(
    RUNNING,
    state=ExtractState.FINISHED,
    sentence="all valid samples are stored",
    job=job("extract", JobState.FINISHED, rc=7),
    stored=9_997,
    failed=1,
    in_flight=0,
    tokens_in_flight=0,
    tokens_stored=17_298_000,
    bytes_stored=991_900_000_000,
    bytes_total=991_900_000_000,
    samples_per_s=0.0,
    tokens_per_s=0.0,
    bytes_per_s=0.0,
    elapsed=917.0,
    eta=None,
)
EXPORT = WorkStatus(WorkState.RUNNING, "It writes.", job("export"), 412, 1_200, 120 * 10**9, 350 * 10**9, 60.0, 95.0)
LIVE = ConnectionChanged(Connection(CONNECTED, "connected", NOW - 600, 12.3))


def snapshot(
    server: ServerStatus = READY, extract: ExtractStatus | None = None, clock: float = NOW, box: Gauges | None = None
) -> Snapshot:
    return Snapshot(clock, box or gauges(), server, extract)


def arrived(server: ServerStatus = READY, extract: ExtractStatus | None = None, at: float = NOW) -> SnapshotArrived:
    return SnapshotArrived(snapshot(server, extract, at), at)


def log_bytes(lines: int = 40) -> bytes:
    text = ""
    for i in range(lines):
        text += (
            f"[2027-01-15 07:59:{i % 60:02d} TP0] Prefill batch, #new-seq: {i % 9}, #new-token: {8000 + 7 * i}, "
            f"#cached-token: 0, #running-req: 8, #queue-req: {31 - i % 20},\n"
        )
    return text.encode()


def extracting() -> list[Event]:
    """Ten minutes of an extraction, seen from the start."""
    events: list[Event] = [LIVE, StepChanged("deploy", "done"), StepChanged("probe", "done", "19 of 19 rows, cached 0")]
    for back in range(600, -1, -10):
        wobble = 11.0 + (back * 7919 % 23) / 10 - back / 400
        status = dataclasses.replace(RUNNING, samples_per_s=wobble if back else 11.8, stored=3_731 - back * 5)
        events.append(arrived(READY, status, NOW - back))
    events.append(Narration("extraction under way", NOW - 590))
    events.append(LogArrived(job("server").id, log_bytes(), 0))
    return events


def trouble() -> list[Event]:
    """An extraction with an export beside it, and a night's alerts."""
    alerts = [
        Alert(NOW - 40_000, "info", "a", "verified /data/hidden/kimi: 9,997 samples, 0 faults"),
        Alert(
            NOW - 30_000,
            "error",
            "b",
            "output disk /data will not hold the run: 41.2 GB (38.4 GiB) too little, full in 9 h 12 m",
            "make room there, or stop (x) and start again with another output directory: what is stored stays",
        ),
        Alert(NOW - 9_000, "warning", "c", "extraction paused: paused by a person", "p lets it go on"),
        Alert(
            NOW - 600,
            "error",
            "d",
            "server-20270115t080000-3f2a shows no progress for 300 s while 38 requests wait",
            "`eagle3-console server stack` shows where each process is; R restarts the server",
        ),
    ]
    return [*extracting(), *(AlertRaised(alert) for alert in alerts), WorkSeen((EXPORT,), NOW)]


SCENES: dict[str, list[Event]] = {
    "loading": [
        LIVE,
        StepChanged("deploy", "done"),
        Narration("release 3f2a91c0 is on the box, 0 B sent", NOW - 280),
        Planned(
            (
                "data: /data/tokenized_data.jsonl, 10,000 samples, 17,300,000 tokens",
                "output: /data/hidden/kimi, 992 GB (924 GiB) of 1.70 TB free",
                "boundaries 2, 30, 58 of 61, final state before the norm",
            )
        ),
        arrived(LOADING),
        LogArrived(job("server").id, b"[2027-01-15 07:55:33 TP0] Load weight begin. avail mem=138.20 GB\n", 0),
        LogArrived(job("server").id, b"\rLoading safetensors checkpoint shards:  48% Completed | 31/64", 65),
    ],
    "extracting": extracting(),
    "failed": [
        LIVE,
        arrived(LOADING, at=NOW - 5),
        arrived(FAILED),
        LogArrived(
            job("server").id,
            b"[2027-01-15 07:59:58 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
            b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. [GPU 3]\n",
            0,
        ),
    ],
    "lost": [
        *extracting(),
        ConnectionChanged(Connection("waiting", "link lost; trying again in 4 s (try 3), r tries now", NOW)),
    ],
    "empty": [LIVE, arrived(ServerStatus(Phase.NOT_RUNNING, "no server of ours was ever started here"))],
    "radix": [
        LIVE,
        arrived(dataclasses.replace(READY, spec=dataclasses.replace(SPEC, radix_cache=True), extra_key=True)),
    ],
    "trouble": trouble(),
    "finished": [*extracting()[:-2], arrived(READY, FINISHED, NOW), LogArrived(job("server").id, log_bytes(), 0)],
}


VERIFIED = VerifyReport("/data/hidden/kimi", True, 9_997, 17_298_000, 991_900_000_000, seconds=611.0)


REPORT = "# Hidden states in /data/hidden/kimi\n\nAll valid samples are stored.\n\n| | |\n|---|---|\n| samples | 9,997 stored |"


class ScriptedController:
    """A stand-in: plays events, and notes what the keys called."""

    def __init__(self, events: Iterable[Event] = (), fault: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.fault = fault
        self._script = list(events)
        self.played = asyncio.Event()
        self.queue: asyncio.Queue[Event] = asyncio.Queue()

    async def events(self) -> AsyncIterator[Event]:
        for event in self._script:
            yield event
        self.played.set()
        while True:
            yield await self.queue.get()

    def losses(self, action: LossyAction) -> list[str]:
        return [f"[{action}] 38 samples in flight are sent again later.", "Loading takes about 9 m 12 s."]

    async def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.fault is not None:
            raise self.fault

    async def deploy(self) -> None:
        await self._note("deploy")

    async def server_line(self) -> str:
        if self.fault is not None:
            raise self.fault
        return "# SGLang 0.5.9\nenv A=1 python -m sglang.launch_server --disable-radix-cache\n# why: [it] is so"

    async def server_start(self) -> None:
        await self._note("server_start")

    async def server_restart(self, radix_cache: bool) -> None:
        await self._note(f"server_restart radix_cache={radix_cache}")

    async def server_stop(self) -> None:
        await self._note("server_stop")

    async def extract_start(self, extra_key: bool = False) -> None:
        await self._note("extract_start" + " extra_key" * extra_key)

    async def extract_stop(self) -> None:
        await self._note("extract_stop")

    async def extract_pause(self) -> None:
        await self._note("extract_pause")

    async def extract_resume(self) -> None:
        await self._note("extract_resume")

    async def verify(self) -> VerifyReport:
        await self._note("verify")
        return VERIFIED

    async def report(self) -> str:
        await self._note("report")
        return REPORT

    async def probe(self) -> None:
        await self._note("probe")

    async def take_over(self) -> None:
        await self._note("take_over")

    async def reconnect_now(self) -> None:
        await self._note("reconnect_now")


def console(scene: str | list[Event] = "extracting", **options: object) -> tuple[ConsoleApp, ScriptedController]:
    events = SCENES[scene] if isinstance(scene, str) else scene
    controller = ScriptedController(events)
    return ConsoleApp(controller, TARGET, wall=lambda: NOW, **options), controller  # type: ignore[arg-type]
