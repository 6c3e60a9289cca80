"""Our own real server with the radix cache on and metrics on: probed, extracted through, measured and metered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.protocol import (
    BenchReport,
    BenchSpec,
    ExtractSpec,
    ExtractState,
    Phase,
    ProbeReport,
    ServerMetrics,
    ServerSpec,
    Snapshot,
    VerifyReport,
    encode,
)
from tests.box.client import AgentProcess, agent, until
from tests.box.test_foreign import MAKE_MODEL, refusal, samples
from tests.patch import servers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyed") / "home"


@pytest.fixture(scope="module")
def box(release: Path, home: Path) -> Iterator[AgentProcess]:
    """An agent whose server is ready."""
    bed = install.ensure(install.VERSIONS[-1])
    work = home.parent
    subprocess.run([bed.python, MAKE_MODEL, "llama", work / "model"], check=True, env={**os.environ, **bed.env})
    spec = ServerSpec(
        model=str(work / "model"),
        python=str(bed.python),
        port=servers.free_port(),
        radix_cache=True,
        extra_args=(*bed.server_args, "--enable-metrics"),
        env={"NCCL_DEBUG": "WARN", "SGLANG_TEST_TOKEN": "s3cret"},
    )
    with agent(release, home, str(bed.python), bed.env) as one:
        assert seen(one).server.metrics is None
        one.call("server.start", **encode(spec))
        try:
            until(lambda: seen(one).server.phase in (Phase.READY, Phase.BUSY), 240, every=0.3)
            yield one
        finally:
            one.call("server.stop", job=None)


def seen(box: AgentProcess) -> Snapshot:
    return box.ask(Snapshot, "snapshot", paths={})


def test_the_probe_says_that_an_extra_key_keeps_prompts_apart(box: AgentProcess) -> None:
    for _ in range(2):
        probe = box.ask(ProbeReport, "server.probe", tokens=19)
        assert (probe.ok, probe.dumped, probe.cached) == (True, 19, 0), probe.sentence
        assert "the same prompt twice, each under an extra_key of its own" in probe.sentence


def on_the_command_line(home: Path, *words: str) -> str:
    argv = [sys.executable, "-m", "eagle3_console", *words[:2], "local", f"--box-dir={home}", *words[2:]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout + (done.stderr if "extract" in words else "")


def test_a_measurement_is_kept_and_nothing_of_it_is_dumped(box: AgentProcess, home: Path) -> None:
    spec = encode(BenchSpec(decode_tokens=24, prefill_tokens=600, repeats=2))
    first = box.ask(BenchReport, "server.bench", **spec)
    second = box.ask(BenchReport, "server.bench", **spec)
    assert first.run is not None
    assert second.run is not None
    assert (first.earlier, second.earlier) == ((), (first.run,))
    run = second.run
    assert run.nccl == {"NCCL_DEBUG": "WARN"}
    assert run.decode_tps == sum(run.decode_all) / 2 > 0
    assert run.prefill_tps == sum(run.prefill_all) / 2 > run.decode_tps
    assert (run.sglang_version, run.tp, run.decode_tokens, run.prefill_tokens) == ("0.5.23", 1, 24, 600)
    assert "--enable-metrics" in run.argv
    shown = on_the_command_line(home, "server", "bench", "--list")
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["#1", "#2"]
    assert "NCCL_DEBUG=WARN" in shown
    kept = box.ask(BenchReport, "server.bench_kept")
    assert (kept.run, kept.earlier) == (None, (first.run, run))
    assert [path for path in Path(seen(box).server.dump_dir).iterdir() if path.name.startswith("req_")] == []
    assert "does not fit" in refusal(box, "server.bench", **{**spec, "prefill_tokens": 1_000_000})


def test_metrics_are_in_the_snapshot(box: AgentProcess, home: Path) -> None:
    def idle() -> ServerMetrics | None:
        metrics = seen(box).server.metrics
        return metrics if metrics is not None and (metrics.running, metrics.queued) == (0, 0) else None

    metrics = until(idle, every=0.2)
    assert metrics is not None
    assert metrics.gen_tps is not None
    assert metrics.cache_hit_rate is not None
    assert metrics.token_usage is not None
    assert 0 <= metrics.token_usage < 1
    said = until(lambda: re.search(r" (\d+) decoding, (\d+) waiting", on_the_command_line(home, "server", "status")))
    assert said is not None


def test_an_extraction_is_offered_without_a_restart_and_is_right(box: AgentProcess, home: Path, tmp_path: Path) -> None:
    asked = encode(ExtractSpec(data=str(samples(tmp_path / "data.jsonl", 300)), out=str(tmp_path / "out")))
    said = refusal(box, "extract.start", **asked)
    assert "Without a restart (the last start took " in said
    assert "--extra-key" in said
    words = [f"--data={tmp_path / 'data.jsonl'}", f"--out={tmp_path / 'out'}", "--extra-key"]
    said = on_the_command_line(home, "extract", "start", *words)
    assert re.search(r"A restart of .+ is avoided", said), said
    assert "Nothing is measured while it does" in refusal(box, "server.bench", **encode(BenchSpec()))

    def ended() -> bool:
        extract = seen(box).extract
        return extract is not None and extract.state in (ExtractState.FINISHED, ExtractState.FAILED)

    until(ended, 120, every=0.2)
    extract = seen(box).extract
    assert extract is not None
    assert (extract.state, extract.stored, extract.failed) == (ExtractState.FINISHED, 300, 0), extract.sentence
    assert extract.spec is not None
    assert extract.spec.extra_key
    assert box.ask(VerifyReport, "verify", dataset=str(tmp_path / "out")).ok
