"""Without the variable a server is SGLang alone; with a wrong one there is no server. Two servers are started at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch.conftest import MakeModel
from tests.patch.servers import ENTRY, launch, modules_of, recorder, running

PATCH = str(ENTRY.parent)
Outcome = Callable[[str], tuple[Any, str]]


@pytest.fixture(scope="module")
def outcome(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """``outcome(case)``: what came of a server, and its log."""
    model, root = make_model("llama", "bfloat16"), tmp_path_factory.mktemp("off")
    gemma = _without_capture(model, root / "gemma")
    (root / "file").write_text("not a folder")
    refusals: dict[str, tuple[str, Path, list[str], dict[str, str]]] = {
        "value 0.5.9": ("0.5.9", model, [], {layout.ENV_FINAL: "middle"}),
        "value 0.5.23": ("0.5.23", model, [], {layout.ENV_FINAL: "middle"}),
        "boundary": ("0.5.9", model, [], {layout.ENV_BOUNDARIES: "2,9"}),
        "folder": ("0.5.23", model, [], {layout.ENV_DUMP_DIR: str(root / "file" / "dump")}),
        "model 0.5.9": ("0.5.9", gemma, ["--load-format", "dummy"], {}),
        "model 0.5.23": ("0.5.23", gemma, ["--load-format", "dummy"], {}),
    }

    def refused(name: str) -> tuple[Any, str]:
        version, path, args, env = refusals[name]
        server = launch(install.ensure(version), path, root / name.replace(" ", "-"), args, env=env)
        return server.refused(), server.log.read_text(errors="replace")

    with ThreadPoolExecutor(2) as pool:
        jobs: dict[str, Future[tuple[Any, str]]] = {name: pool.submit(refused, name) for name in refusals}
        jobs |= {f"off {v}": pool.submit(_modules_without_variable, v, model, root / v) for v in install.VERSIONS}
        yield lambda name: jobs[name].result()


def _without_capture(llama: Path, folder: Path) -> Path:
    """A model whose class SGLang serves and cannot capture."""
    config = json.loads((llama / "config.json").read_text())
    config |= {"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh"}
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((llama / name).read_bytes())
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _modules_without_variable(version: str, model: Path, work: Path) -> tuple[Any, str]:
    before, env = recorder(work / "records")
    with running(install.ensure(version), model, work, patched=False, before=before, env=env) as server:
        server.generate("e3-off-0-0", [5, 6, 7], new_tokens=1)
        processes = modules_of(server)
        assert not server.dump_dir.exists()
    return processes, server.log.read_text(errors="replace")


@pytest.mark.parametrize("version", install.VERSIONS)
def test_a_value_that_means_nothing_is_refused_before_the_weights(version: str, outcome: Outcome) -> None:
    reason, log = outcome(f"value {version}")
    assert reason == "EAGLE3_FINAL='middle': it may be pre or post"
    assert "Load weight begin" not in log


def test_a_boundary_that_the_model_does_not_have_is_refused(outcome: Outcome) -> None:
    reason, log = outcome("boundary")
    assert "outside 0 to 8" in reason
    assert "Load weight begin" not in log


def test_a_dump_directory_that_cannot_be_written_is_refused(outcome: Outcome) -> None:
    reason, log = outcome("folder")
    assert "Not a directory" in reason
    assert "Load weight begin" not in log


@pytest.mark.parametrize("version", install.VERSIONS)
def test_a_model_without_sglangs_capture_is_refused(version: str, outcome: Outcome) -> None:
    reason, _ = outcome(f"model {version}")
    assert "GemmaForCausalLM has no set_eagle3_layers_to_capture" in reason


@pytest.mark.parametrize("version", install.VERSIONS)
def test_without_the_variable_no_process_has_a_module_of_ours(version: str, outcome: Outcome) -> None:
    processes, log = outcome(f"off {version}")
    assert len(processes) >= 3
    assert any("sglang.srt.managers.scheduler" in modules for modules in processes)
    for modules in processes:
        ours = [name for name, file in modules.items() if name.startswith("eagle3") or file.startswith(PATCH)]
        assert ours == []
    assert "eagle3-patch" not in log
