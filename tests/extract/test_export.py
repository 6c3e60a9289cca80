"""A dataset of real SGLang, exported, through the loaders of the projects that train on it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.protocol import ExportSpec, WorkState
from tests.extract import exports, trainers
from tests.extract.conftest import Real
from tests.extract.jobs import PATHS

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
LOADER = (REFERENCE / "load_export.py").read_text()
REQUESTS = {
    "speculators": {"format": "speculators"},
    "fp8": {"format": "speculators", "dtype": "float8_e4m3fn"},
    "v1": {"format": "speculators-v1"},
    "v1-bf16": {"format": "speculators-v1", "dtype": "bfloat16"},
    "specforge": {"format": "specforge"},
    "modelopt": {"format": "modelopt"},
    "modelopt-pre": {"format": "modelopt", "final": "pre"},
    "pt": {"format": "pt"},
    "pt-post": {"format": "pt", "final": "post"},
}
LAYER_IDS = {
    "speculators": {"target_layer_ids": [2, 4, 5]},
    "v1": {"layer_ids": [1, 3, 4, 7]},
    "specforge": {"aux_hidden_state_layer_ids": [1, 3, 4]},
    "modelopt": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]},
    "pt": {"boundaries": [2, 4, 5]},
}
"""Of the boundaries 2, 4, 5 and the final state of 8 layers."""


@dataclasses.dataclass(frozen=True)
class Exports:
    """All exports of one dataset, made in one process."""

    root: Path
    before: dict[str, tuple[int, int, int]]
    """Size, inode and time of change of the dataset's files before they were made."""

    def __getitem__(self, name: str) -> Path:
        return self.root / name

    def manifest(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / name / ".eagle3-export/manifest.json").read_text())
        return found


def files_of(dataset: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path.relative_to(dataset)): (stat.st_size, stat.st_ino, stat.st_mtime_ns)
        for path in dataset.rglob("*")
        if (stat := path.stat())
    }


@pytest.fixture(scope="module")
def made(dataset: Path, python: Path, tmp_path_factory: pytest.TempPathFactory) -> Exports:
    work = tmp_path_factory.mktemp("exports")
    before = files_of(dataset)
    dirs = [
        exports.prepare(work / f"run-{name}", ExportSpec(dataset=str(dataset), to=str(work / name), **request))
        for name, request in REQUESTS.items()
    ]
    done = exports.run(python, *dirs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {exports.status(run_dir).state for run_dir in dirs} == {WorkState.FINISHED}
    return Exports(work, before)


READERS = {
    "speculators-0.3.0": {"v1": ("v1-old", "float32")},
    "speculators-0.5.0": {"as it is": ("current", "float32")},
    "speculators-0.7.0.2": {"v1": ("v1-new", "float32"), "v1-bf16": ("v1-new", "bfloat16")},
    "speculators-0.9.0": {
        "as it is": ("current", "float32"),
        "speculators": ("current", "float32"),
        "fp8": ("fp8", "bfloat16"),
        "pt": ("pt", "float32"),
        "pt-post": ("pt", "float32"),
    },
    "specforge-0.2.0": {"specforge": ("specforge", "float32")},
    "modelopt-0.47.0": {"modelopt": ("modelopt", "float32"), "modelopt-pre": ("modelopt", "float32")},
}
"""By trainer: export, the loader it goes through (`tests/reference/load_export.py`), and the dtype that comes out."""
NORMED = ("specforge", "modelopt", "pt-post")


@pytest.mark.timeout(900)  # the first run installs the trainers
@pytest.mark.parametrize("trainer", READERS)
def test_the_trainers_own_loader_reads_every_value(trainer: str, made: Exports, real: Real, dataset: Path) -> None:
    asked = READERS[trainer]
    words = [f"{loader}={dataset if name == 'as it is' else made[name]}" for name, (loader, _) in asked.items()]
    out = trainers.trainer(trainer).run(LOADER, real.data, dataset, real.model, *words)
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    tokens = sum(len(json.loads(line)["input_ids"]) for line in real.data.read_text().splitlines())
    assert len(found) == len(asked)
    for one, (name, (_, dtype)) in zip(found, asked.items(), strict=True):
        assert (name, one["wrong"]) == (name, [])
        assert (name, one["samples"], one["tokens"]) == (name, real.samples, tokens)
        assert (name, one["dtypes"]) == (name, [f"torch.{dtype}"])
        assert (name, one["normed"]) == (name, real.samples if name in NORMED else 0)


def test_the_source_is_as_it_was(made: Exports, dataset: Path) -> None:
    def without_sqlites_own(files: dict[str, tuple[int, int, int]]) -> dict[str, tuple[int, int, int]]:
        own = (".eagle3", ".eagle3/journal.sqlite3-shm", ".eagle3/journal.sqlite3-wal")  # come and go while it reads
        return {name: facts for name, facts in files.items() if name not in own}

    assert without_sqlites_own(files_of(dataset)) == without_sqlites_own(made.before)


def test_the_same_bytes_are_hard_links_and_take_no_space(made: Exports, dataset: Path) -> None:
    for path in (dataset / "hidden_states").iterdir():
        assert path.samefile(made["speculators"] / "hidden_states" / path.name)
    fp8, whole = (
        sum(path.stat().st_size for path in (folder / "hidden_states").iterdir()) for folder in (made["fp8"], dataset)
    )
    assert fp8 < whole / 3.5  # from float32; from bfloat16 it is a half


def test_layer_ids_are_as_each_trainer_counts_them(made: Exports) -> None:
    assert {name: made.manifest(name)["layer_ids"] for name in LAYER_IDS} == LAYER_IDS
    config = json.loads((made["v1"] / "data_config.json").read_text())
    assert config["hidden_states"]["layer_ids"] == [1, 3, 4, 7]


def test_a_second_run_writes_nothing(made: Exports, dataset: Path, python: Path, tmp_path: Path) -> None:
    before = files_of(made["specforge"])
    spec = ExportSpec(str(dataset), "specforge", str(made["specforge"]))
    done = exports.run(python, exports.prepare(tmp_path / "run", spec))
    assert done.returncode == 0, done.stdout
    assert exports.status(tmp_path / "run").sentence.startswith("All 64 samples were there already as specforge")
    ours = {name for name in before if name.startswith(".eagle3-export")}
    assert {k: v for k, v in files_of(made["specforge"]).items() if k not in ours} == {
        k: v for k, v in before.items() if k not in ours
    }


def test_what_is_missing_or_cut_is_written_again(made: Exports, dataset: Path, python: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    shutil.copytree(made["modelopt"], target)
    (target / "3.pt").unlink()
    with (target / "5.pt").open("r+b") as file:
        file.truncate(5000)
    done = exports.run(python, exports.prepare(tmp_path / "run", ExportSpec(str(dataset), "modelopt", str(target))))
    assert done.returncode == 0, done.stdout
    for path in made["modelopt"].glob("*.pt"):
        assert (target / path.name).read_bytes() == path.read_bytes()


def test_another_request_into_the_same_directory_is_refused(
    made: Exports, dataset: Path, python: Path, tmp_path: Path
) -> None:
    spec = ExportSpec(str(dataset), "modelopt", str(made["modelopt"]), final="pre")
    said = exports.refused(python, tmp_path / "run", spec)
    assert f"{made['modelopt']} holds another export: final is post there, pre is asked" in said


def test_a_flipped_bit_in_the_source_is_not_handed_on(dataset: Path, python: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    path = copy / "hidden_states/hs_7.safetensors"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    said = exports.refused(python, tmp_path / "run", ExportSpec(str(copy), "pt", str(tmp_path / "out")))
    assert "the bytes of hs_7.safetensors are not those that were stored" in said
    assert not (tmp_path / "out/sample_7").exists()


def test_post_is_never_turned_into_pre(dataset: Path, python: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(dataset / ".eagle3", copy / ".eagle3")
    manifest = copy / ".eagle3/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "final": "post"}))
    said = exports.refused(python, tmp_path / "run", ExportSpec(str(copy), "speculators-v1", str(tmp_path / "out")))
    assert "this dataset holds it after it: that cannot be turned back" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", ["model_type", "weights", "gone"])
def test_a_norm_that_is_not_known_is_refused(
    change: str, real: Real, dataset: Path, python: Path, tmp_path: Path
) -> None:
    """Another kind of model, another model, and none: nothing is written in the hope that it is right."""
    model, copy = tmp_path / "model", tmp_path / "copy"
    shutil.copytree(real.model, model)
    copy.mkdir()
    shutil.copytree(dataset / ".eagle3", copy / ".eagle3")
    config = json.loads((model / "config.json").read_text())
    if change == "gone":
        shutil.rmtree(model)
    else:
        told = {"model_type": "gpt2"} if change == "model_type" else {"rms_norm_eps": 1e-4}
        (model / "config.json").write_text(json.dumps({**config, **told}))
    if change == "model_type":  # the model that it was made with
        fingerprint(copy, model, python)
    spec = ExportSpec(str(copy), "specforge", str(tmp_path / "out"), model=str(model))
    said = exports.refused(python, tmp_path / "run", spec)
    assert {
        "model_type": "(model_type 'gpt2') is not known here",
        "weights": f"{model} is not the model that {copy} was made with",
        "gone": f"The model {model} is not on this box any more",
    }[change] in said
    assert not (tmp_path / "out").exists()


def fingerprint(dataset: Path, model: Path, python: Path) -> None:
    """Let the dataset's manifest name the model as it is now."""
    code = f"import sys; sys.path[:0] = {PATHS!r}; from eagle3_remote.extract.facts import read_model; "
    code += "print(read_model(sys.argv[1]).fingerprint)"
    found = subprocess.run([python, "-c", code, model], capture_output=True, text=True, check=True).stdout.strip()
    path = dataset / ".eagle3/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["model"]["fingerprint"] = found
    path.write_text(json.dumps(manifest))


def test_every_norm_we_know_is_that_of_transformers(bed: install.TestBed, tmp_path: Path) -> None:
    argv = [str(bed.python), "-W", "ignore", str(REFERENCE / "compare_norms.py"), *PATHS, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env={**os.environ, **bed.env})
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["unknown"] == ["kimi_k2"]  # its remote code takes DeepSeek-V3's class
    assert len(found["errors"]) > 30
    assert max(found["errors"].values()) < 1e-6, found["errors"]
