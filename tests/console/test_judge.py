"""The doctor's verdict."""

from __future__ import annotations

import dataclasses

import pytest

from eagle3_console.errors import BoxNotFit
from eagle3_console.judge import FAIL, OK, WARN, choose_python, judge, refuse_unfit
from eagle3_console.plan import Plan
from eagle3_remote.protocol import Facts, Gauges, Gpu, ModelFact, PathFact, PortFact, PythonFact

GIB = 2**30
PYTHON = PythonFact("/venv/bin/python", "a place", version="3.12.3", sglang="0.5.23")
GPUS = tuple(Gpu(index, "H200", memory_used=4 << 20, memory_total=141 * GIB) for index in range(8))
FIT = Facts(
    host="gpu-box",
    user="root",
    system="Linux",
    machine="x86_64",
    python="/usr/bin/python3",
    clock=0.0,
    boot_id="b",
    pythons=(PYTHON,),
    looked_in=("PATH", "conda"),
    gauges=Gauges("gpu-box", 64, 1.0, 512 * GIB, 400 * GIB, gpus=GPUS),
    shm_total=256 * GIB,
    shm_free=250 * GIB,
    model=ModelFact("/m", True, "DeepseekV3ForCausalLM", 61, 7168, 163840, 131072, "bfloat16", 64, 600 * GIB),
    data=PathFact("/d.jsonl", True, size=10**9),
    out=PathFact("/out", False, parent_exists=True, writable=True, free=10**12, total=2 * 10**12),
    port=PortFact(30000, True),
)
PLAN = Plan(model="/m", data="/d.jsonl", out="/out", tp=8)


def levels(facts: Facts, plan: Plan = PLAN) -> dict[str, str]:
    return {finding.what: finding.level for finding in judge(facts, plan)}


def test_a_fit_box() -> None:
    assert set(levels(FIT).values()) == {OK}
    refuse_unfit(judge(FIT, PLAN), "gpu-box")
    assert choose_python(FIT, PLAN) == PYTHON.path


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("python", {"pythons": ()}),
        ("python", {"pythons": (dataclasses.replace(PYTHON, missing=("pyarrow",)),)}),
        ("gpu", {"gauges": dataclasses.replace(FIT.gauges, gpus=())}),  # type: ignore[type-var]
        ("gpu", {"gauges": dataclasses.replace(FIT.gauges, gpus=GPUS[:4])}),  # type: ignore[type-var]
        ("shm", {"shm_total": 64 << 20, "shm_free": 64 << 20}),
        ("model", {"model": ModelFact("/m", False)}),
        ("model", {"model": dataclasses.replace(FIT.model, weight_files=0)}),  # type: ignore[type-var]
        ("data", {"data": PathFact("/d.jsonl", False)}),
        ("output", {"out": PathFact("/a/out", False)}),
        ("output", {"out": PathFact("/out", True, is_dir=True, parent_exists=True, writable=False)}),
        ("port", {"port": PortFact(30000, False, "pid 7 (python)")}),
    ],
)
def test_what_makes_it_unfit(what: str, changed: dict[str, object]) -> None:
    facts = dataclasses.replace(FIT, **changed)  # type: ignore[arg-type]
    assert levels(facts)[what] == FAIL
    with pytest.raises(BoxNotFit, match="gpu-box is not fit") as refused:
        refuse_unfit(judge(facts, PLAN), "gpu-box")
    assert refused.value.exit_code == 5


def test_a_port_held_by_our_own_server_is_fine() -> None:
    port = PortFact(30000, False, "pid 7 (python)", job="server-20261129T000000-abcd")
    assert levels(dataclasses.replace(FIT, port=port))["port"] == OK


def test_a_gpu_in_use_is_a_warning() -> None:
    used = dataclasses.replace(GPUS[3], memory_used=80 * GIB)
    gauges = dataclasses.replace(FIT.gauges, gpus=(*GPUS[:3], used, *GPUS[4:]))  # type: ignore[type-var]
    assert levels(dataclasses.replace(FIT, gauges=gauges))["gpu"] == WARN


def test_a_cpu_server_needs_no_gpu() -> None:
    gauges = dataclasses.replace(FIT.gauges, gpus=())  # type: ignore[type-var]
    plan = dataclasses.replace(PLAN, server_args=("--device", "cpu"))
    assert levels(dataclasses.replace(FIT, gauges=gauges), plan)["gpu"] == OK


def test_boundaries_beyond_the_model() -> None:
    assert levels(FIT, dataclasses.replace(PLAN, boundaries=(2, 30, 62)))["model"] == FAIL
    assert levels(FIT, dataclasses.replace(PLAN, boundaries=(2, 30, 61)))["model"] == OK
    told = [
        one.sentence for one in judge(FIT, dataclasses.replace(PLAN, boundaries=(2, 62, 70))) if one.what == "model"
    ]
    assert "Boundaries 62, 70 are asked" in told[0], "all that are wrong"


def test_several_pythons_are_asked_about() -> None:
    other = dataclasses.replace(PYTHON, path="/opt/other/bin/python", sglang="0.5.9")
    facts = dataclasses.replace(FIT, pythons=(PYTHON, other))
    with pytest.raises(BoxNotFit, match=r"/opt/other/bin/python.*--python"):
        choose_python(facts, PLAN)


@pytest.mark.parametrize("sign", ["running server", "VIRTUAL_ENV"])
def test_the_one_in_use_is_meant(sign: str) -> None:
    used = dataclasses.replace(PYTHON, path="/opt/used/bin/python", found_by=sign)
    assert choose_python(dataclasses.replace(FIT, pythons=(PYTHON, used)), PLAN) == used.path


def test_two_in_use_are_asked_about() -> None:
    served = dataclasses.replace(PYTHON, found_by="running server")
    active = dataclasses.replace(PYTHON, path="/opt/active/bin/python", found_by="VIRTUAL_ENV")
    with pytest.raises(BoxNotFit, match="Choose one"):
        choose_python(dataclasses.replace(FIT, pythons=(served, active)), PLAN)


def test_the_named_python_is_taken_or_refused() -> None:
    plan = dataclasses.replace(PLAN, python="/my/python")
    mine = PythonFact("/my/python", "--python", version="3.11.2", sglang="0.5.9")
    assert choose_python(dataclasses.replace(FIT, pythons=(mine, PYTHON)), plan) == "/my/python"
    without = dataclasses.replace(mine, sglang="")
    with pytest.raises(BoxNotFit, match="/my/python on gpu-box has no SGLang"):
        choose_python(dataclasses.replace(FIT, pythons=(without, PYTHON)), plan)
    broken = dataclasses.replace(mine, sglang="", error="no such file")
    with pytest.raises(BoxNotFit, match="cannot be used: no such file"):
        choose_python(dataclasses.replace(FIT, pythons=(broken, PYTHON)), plan)
