"""Measurements beside each other, and beside what others report."""

from __future__ import annotations

import dataclasses

from eagle3_console.benchtable import Reference, flags, table
from eagle3_remote.protocol import BenchReport, BenchRun

ARGV = ("/venv/bin/python", "-u", "-m", "sglang.launch_server", "--model-path", "/models/kimi", "--port", "30000")
OLD = BenchRun(
    at=1_800_000_000.0,
    model="/models/kimi",
    sglang_version="0.5.9",
    decode_tps=50.0,
    prefill_tps=12_000.0,
    decode_tokens=128,
    prefill_tokens=2048,
    gpus=("NVIDIA H200",) * 8,
    tp=8,
    argv=(*ARGV, "--disable-radix-cache", "--tp-size", "8", "--attention-backend", "triton"),
    nccl={"NCCL_P2P_LEVEL": "SYS"},
)
NEW = dataclasses.replace(OLD, at=1_800_090_000.0, decode_tps=60.0, sglang_version="0.5.23", nccl={})


def test_the_newest_is_first_and_says_how_much_faster_it_is() -> None:
    lines = table(BenchReport(NEW, (OLD,), "/box/bench.jsonl"), ()).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["#1", "#2"]
    assert "60.0" in lines[1]
    assert "this run" in lines[1]
    assert "8 x NVIDIA H200" in lines[1]
    assert "128/2048" in lines[1]
    assert "decode +20.0 % since" in lines[2]
    assert lines[-2] == "#1 --disable-radix-cache --attention-backend triton; no NCCL_* set"
    assert lines[-1] == "#2 --disable-radix-cache --attention-backend triton; NCCL_P2P_LEVEL=SYS"


def test_only_what_was_measured_alike_is_compared() -> None:
    for other in (dataclasses.replace(OLD, model="/models/llama"), dataclasses.replace(OLD, decode_tokens=16)):
        assert "since" not in table(BenchReport(NEW, (other,)), ())


def test_figures_of_others_are_marked_as_such() -> None:
    shown = table(BenchReport(NEW), (Reference("single-stream decode", decode_tps=63.6, note="hand-made run"),))
    (line,) = [line for line in shown.splitlines() if "63.6" in line]
    assert "not measured here" in line
    assert "hand-made run" in line
    assert "  -  " in line  # no figure for prefill


def test_nothing_measured_is_said() -> None:
    assert "Nothing was measured yet" in table(BenchReport(None, (), "/box/bench.jsonl"), ())


def test_flags_that_have_a_column_are_left_out() -> None:
    assert flags(("python", "--model-path", "/m", "--port=1", "--host", "h", "--x", "1", "2")) == ["--x", "1", "2"]
    assert flags(()) == []
