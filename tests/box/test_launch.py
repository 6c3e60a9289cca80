"""The launch line by version, as tables."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from eagle3_remote.launch import PlanError, parse_version, plan, settle
from eagle3_remote.protocol import LaunchPlan, ModelFact, ServerSpec

MODEL = ModelFact(path="/m", exists=True, num_layers=61, vocab_size=100)
SPEC = ServerSpec(model="/m", python="/venv/bin/python", port=30001, tp=8, boundaries=(58, 2, 30))
RELEASE = Path("/home/u/.eagle3-console/releases/abc")

GRAPHS, PIECEWISE = "--disable-cuda-graph", "--disable-piecewise-cuda-graph"
FUSION, WARMUP, RADIX = (
    "--enforce-disable-flashinfer-allreduce-fusion",
    "--skip-server-warmup",
    "--disable-radix-cache",
)


def make(spec: ServerSpec = SPEC, version: str = "0.5.23", env: dict[str, str] | None = None) -> LaunchPlan:
    return plan(settle(spec), version, MODEL, RELEASE, "/dev/shm/d", env or {})


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.5.4.post3", {RADIX, GRAPHS, WARMUP}),
        ("0.5.6.post2", {RADIX, GRAPHS, WARMUP}),
        ("0.5.8.post1", {RADIX, GRAPHS, WARMUP}),
        ("0.5.9", {RADIX, GRAPHS, WARMUP}),
        ("0.5.10.post1", {RADIX, GRAPHS, WARMUP, PIECEWISE, FUSION}),
        ("0.5.13.post1", {RADIX, GRAPHS, WARMUP, PIECEWISE, FUSION}),
        ("0.5.16", {RADIX, GRAPHS, WARMUP, FUSION}),
        ("0.5.20", {RADIX, GRAPHS, WARMUP, FUSION}),
        ("0.5.23", {RADIX, GRAPHS, WARMUP, FUSION}),
    ],
)
def test_flags_of_each_version(version: str, flags: set[str]) -> None:
    made = make(version=version)
    line = "-u -m sglang.launch_server --model-path /m --host 127.0.0.1 --port 30001 --tp-size 8"
    assert made.argv[:12] == ("/venv/bin/python", *line.split())
    assert set(made.argv[12:]) == flags
    assert len(made.argv[12:]) == len(flags)
    assert {note.partition(":")[0] for note in made.notes} == flags  # each has its reason
    assert made.sglang_version == version


@pytest.mark.parametrize(("version", "told"), [("0.5.4.post3", False), ("0.5.6.post2", True), ("0.5.23", True)])
def test_health_without_generation_where_the_version_has_it(version: str, told: bool) -> None:
    assert ("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION" in make(version=version).env) is told


def test_environment() -> None:
    spec = dataclasses.replace(SPEC, env={"NCCL_DEBUG": "INFO", "PYTHONUNBUFFERED": "0"}, final="post")
    env = make(spec, env={"PYTHONPATH": "/stubs:/more", "PATH": "/usr/bin"}).env
    assert env == {
        "PYTHONPATH": f"{RELEASE}/eagle3_patch/entry:/stubs:/more",
        "PATH": "/venv/bin:/usr/bin",
        "PYTHONUNBUFFERED": "0",
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        "EAGLE3_DUMP_DIR": "/dev/shm/d",
        "EAGLE3_BOUNDARIES": "2,30,58",
        "EAGLE3_FINAL": "post",
        "NCCL_DEBUG": "INFO",
    }
    assert "PATH" not in make(env={"PATH": "/usr/bin:/venv/bin"}).env
    assert make().env["PYTHONPATH"] == f"{RELEASE}/eagle3_patch/entry"
    own = dataclasses.replace(SPEC, env={"PYTHONPATH": "/mine"}, boundaries=())
    assert make(own, env={"PYTHONPATH": "/stubs"}).env["PYTHONPATH"] == f"{RELEASE}/eagle3_patch/entry:/mine"
    assert "EAGLE3_BOUNDARIES" not in make(own).env


def test_the_persons_own_arguments_win_and_come_last() -> None:
    extra = ("--chunked-prefill-size", "4096", "--disable-cuda-graph", "--host=0.0.0.0", "--tp", "4", "--port", "31000")
    made = make(dataclasses.replace(SPEC, extra_args=extra))
    assert made.argv[-3:] == ("--chunked-prefill-size", "4096", "--disable-cuda-graph")
    assert made.argv.count("--disable-cuda-graph") == 1
    assert " ".join(made.argv).count("--host 0.0.0.0 --port 31000 --tp-size 4") == 1
    settled = settle(dataclasses.replace(SPEC, extra_args=(*extra, "--model=/other")))
    assert (settled.host, settled.port, settled.tp, settled.model) == ("0.0.0.0", 31000, 4, "/other")


def test_radix_cache_on_purpose() -> None:
    made = make(dataclasses.replace(SPEC, radix_cache=True))
    assert RADIX not in made.argv
    assert any("radix cache ON" in note for note in made.notes)


@pytest.mark.parametrize(
    ("change", "version", "sentence"),
    [
        ({}, "0.5.3", "too old"),
        ({}, "main", "cannot be read"),
        ({"boundaries": (2, 62)}, "0.5.23", "outside 0 to 61"),
        ({"boundaries": (2, 2)}, "0.5.23", "twice"),
        ({"final": "mid"}, "0.5.23", "neither pre nor post"),
        ({"port": 0}, "0.5.23", "outside 1 to 65535"),
        ({"tp": 0}, "0.5.23", "at least one GPU"),
        ({"extra_args": ("--port",)}, "0.5.23", "has no value"),
        ({"extra_args": ("--tp", "two")}, "0.5.23", "whole numbers"),
    ],
)
def test_refusals(change: dict[str, object], version: str, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        make(dataclasses.replace(SPEC, **change), version)  # type: ignore[arg-type]


def test_a_model_too_small_for_the_default_boundaries() -> None:
    small = dataclasses.replace(MODEL, num_layers=4)
    with pytest.raises(PlanError, match="name them yourself"):
        plan(dataclasses.replace(SPEC, boundaries=()), "0.5.23", small, RELEASE, "/d", {})
    assert plan(dataclasses.replace(SPEC, boundaries=(1, 2)), "0.5.23", small, RELEASE, "/d", {}).argv


def test_versions() -> None:
    assert parse_version("0.5.10.post1") == (0, 5, 10) > parse_version("0.5.9")
