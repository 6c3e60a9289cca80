"""The doctor's verdict: pure functions from what the box told to what it means for a plan."""

from __future__ import annotations

import dataclasses

from eagle3_console import units
from eagle3_console.errors import BoxNotFit
from eagle3_console.plan import Plan
from eagle3_remote.protocol import Facts, ModelFact, PathFact, PythonFact

OK, WARN, FAIL = "ok", "warn", "fail"
_MIN_SHM = 1 << 30


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor's answer."""

    level: str
    """``ok``, ``warn`` or ``fail``."""
    what: str
    sentence: str
    cure: str = ""


def judge(facts: Facts, plan: Plan) -> tuple[Finding, ...]:
    """All findings, in the order a person would check them.

    Args:
        facts: what the box told.
        plan: what is wanted; empty paths are not judged.
    """
    found = [_python(facts, plan), *_gpus(facts, plan), _shm(facts, plan)]
    if facts.model is not None:
        found.append(_model(facts.model, plan))
    if facts.data is not None:
        found.append(_data(facts.data))
    if facts.out is not None:
        found.append(_directory("output", facts.out, "--out"))
    if facts.dump is not None:
        found.append(_directory("dump", facts.dump, "--dump-dir"))
    if facts.port is not None:
        found.append(_port(facts))
    return tuple(found)


def refuse_unfit(findings: tuple[Finding, ...], where: str) -> None:
    """Raise if any finding is a failure.

    Raises:
        BoxNotFit: with all failures and their cures.
    """
    bad = [f"{f.sentence} {f.cure}".strip() for f in findings if f.level == FAIL]
    if bad:
        raise BoxNotFit(f"{where} is not fit for this run: " + " ".join(bad))


def choose_python(facts: Facts, plan: Plan) -> str:
    """The one Python with SGLang.

    Raises:
        BoxNotFit: none, or several and none was named.
    """
    finding = _python(facts, plan)
    if finding.level == FAIL:
        raise BoxNotFit(f"{finding.sentence} {finding.cure}".strip())
    return meant(facts)[0].path


def meant(facts: Facts) -> list[PythonFact]:
    """The Pythons with SGLang; where somebody already uses one, that one alone is meant."""
    able = [python for python in facts.pythons if python.sglang]
    for sign in (("--python",), ("running server", "VIRTUAL_ENV")):
        if chosen := [python for python in able if python.found_by in sign]:
            return chosen
    return able


def _python(facts: Facts, plan: Plan) -> Finding:
    able = meant(facts)
    if plan.python:
        asked = next((p for p in facts.pythons if p.found_by == "--python"), None)
        if asked is None or asked.error:
            why = asked.error if asked is not None else "it was not looked at"
            return Finding(
                FAIL, "python", f"{plan.python} on {facts.host} cannot be used: {why}.", "Name another with --python."
            )
        if not asked.sglang:
            cure = f"Install it there ({plan.python} -m pip install sglang) or name another Python with --python."
            return Finding(FAIL, "python", f"{plan.python} on {facts.host} has no SGLang.", cure)
    if not able:
        looked = ", ".join(facts.looked_in) or "nowhere"
        sentence = f"No Python with SGLang was found on {facts.host}; looked in {looked}."
        return Finding(FAIL, "python", sentence, "Name it with --python /path/to/python.")
    if len(able) > 1:
        names = ", ".join(f"{p.path} (SGLang {p.sglang}, {p.found_by})" for p in able)
        return Finding(
            FAIL, "python", f"Several Pythons on {facts.host} have SGLang: {names}.", "Choose one with --python."
        )
    chosen = able[0]
    if chosen.missing:
        cure = f"{chosen.path} -m pip install {' '.join(chosen.missing)}"
        return Finding(
            FAIL,
            "python",
            f"{chosen.path} lacks {', '.join(chosen.missing)}, which the extraction needs.",
            f"Run: {cure}",
        )
    return Finding(OK, "python", f"{chosen.path}: Python {chosen.version}, SGLang {chosen.sglang} ({chosen.found_by}).")


def _gpus(facts: Facts, plan: Plan) -> list[Finding]:
    gpus = facts.gauges.gpus if facts.gauges is not None else ()
    if plan.on_cpu():
        return [Finding(OK, "gpu", "The server runs on the CPU, as asked (--device cpu).")]
    if not gpus:
        return [
            Finding(
                FAIL,
                "gpu",
                f"No GPU is seen on {facts.host} (nvidia-smi).",
                "For a CPU run add --server-arg=--device --server-arg=cpu.",
            )
        ]
    if plan.tp > len(gpus):
        return [
            Finding(FAIL, "gpu", f"--tp {plan.tp} needs more GPUs than the {len(gpus)} of {facts.host}.", "Lower --tp.")
        ]
    held = [f"GPU {g.index} holds {g.memory_used / 2**30:.0f} GiB" for g in gpus if g.memory_used > 2**30]
    names = f"{len(gpus)} × {gpus[0].name}"
    if held:
        return [
            Finding(
                WARN, "gpu", f"{names}; in use: {', '.join(held)}.", "Stop what holds them, or the server may not fit."
            )
        ]
    return [Finding(OK, "gpu", f"{names}, all free.")]


def _shm(facts: Facts, plan: Plan) -> Finding:
    free, total = facts.shm_free, facts.shm_total
    text = f"/dev/shm has {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    if plan.dump_dir or free >= _MIN_SHM:
        return Finding(OK, "shm", text + ".")
    cure = "Start the container with --ipc=host or a larger --shm-size, or name a dump directory on a fast disk with --dump-dir."
    return Finding(FAIL if total < _MIN_SHM else WARN, "shm", text + ": too little for the dumps in flight.", cure)


def _model(model: ModelFact, plan: Plan) -> Finding:
    if not model.exists:
        return Finding(FAIL, "model", f"There is no model directory {model.path} on the box.", "Check --model.")
    if model.error:
        return Finding(FAIL, "model", f"The model in {model.path} cannot be read: {model.error}.", "Check --model.")
    if model.weight_files == 0 and "dummy" not in plan.server_args:
        return Finding(
            FAIL,
            "model",
            f"{model.path} has a config.json but no weight files.",
            "Finish the download, or check --model.",
        )
    if beyond := [str(one) for one in plan.boundaries if one > model.num_layers]:
        asked = f"Boundary {beyond[0]} is" if len(beyond) == 1 else f"Boundaries {', '.join(beyond)} are"
        sentence = f"{asked} asked, and {model.path} has {model.num_layers} layers."
        return Finding(FAIL, "model", sentence, f"Boundaries go from 0 to {model.num_layers}.")
    size = f"{model.weight_files} weight files, {units.gb(model.weight_bytes)}"
    return Finding(
        OK,
        "model",
        f"{model.path}: {model.architecture}, {model.num_layers} layers, hidden {model.hidden_size}, {size}.",
    )


def _data(data: PathFact) -> Finding:
    if not data.exists:
        return Finding(FAIL, "data", f"There is no data file {data.path} on the box.", "Check --data.")
    if data.error:
        return Finding(FAIL, "data", f"{data.path} cannot be read: {data.error}.", "Check --data.")
    if data.is_dir:
        return Finding(OK, "data", f"{data.path}: a folder, read as Arrow or Parquet.")
    return Finding(OK, "data", f"{data.path}: {units.gb(data.size)}.")


def _directory(name: str, path: PathFact, option: str) -> Finding:
    if not path.exists and not path.parent_exists:
        cure = f"Make it first, or check {option}."
        return Finding(FAIL, name, f"The parent directory of {path.path} does not exist on the box.", cure)
    if path.exists and not path.is_dir:
        return Finding(FAIL, name, f"{path.path} exists and is no directory.", f"Check {option}.")
    if not path.writable:
        return Finding(
            FAIL, name, f"{path.path} cannot be written by this user.", f"Change its owner, or check {option}."
        )
    return Finding(OK, name, f"{path.path}: {path.free / 1e9:.0f} GB ({path.free / 2**30:.0f} GiB) free.")


def _port(facts: Facts) -> Finding:
    port = facts.port
    assert port is not None
    if port.free:
        return Finding(OK, "port", f"Port {port.port} is free.")
    if port.job:
        return Finding(OK, "port", f"Port {port.port} is held by our own {port.job}.")
    holder = f" by {port.holder}" if port.holder else ""
    return Finding(
        FAIL, "port", f"Port {port.port} on {facts.host} is taken{holder}.", "Stop that, or choose another with --port."
    )
