"""Without the variable a server is SGLang alone; with a wrong one there is no server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch.conftest import MakeModel
from tests.patch.servers import ENTRY, Server, launch, modules_of, recorder, running, stop

PATCH = str(ENTRY.parent)


@pytest.mark.parametrize("version", install.VERSIONS)
def test_without_the_variable_no_process_has_a_module_of_ours(
    version: str, make_model: MakeModel, tmp_path: Path
) -> None:
    before, env = recorder(tmp_path / "records")
    model = make_model("llama", "bfloat16")
    with running(install.ensure(version), model, tmp_path, patched=False, before=before, env=env) as server:
        server.generate("e3-off-0-0", [5, 6, 7], new_tokens=1)
        processes = modules_of(server)
    assert len(processes) >= 3
    assert any("sglang.srt.managers.scheduler" in modules for modules in processes)
    for modules in processes:
        ours = [name for name, file in modules.items() if name.startswith("eagle3") or file.startswith(PATCH)]
        assert ours == []
    assert "eagle3-patch" not in server.log.read_text(errors="replace")
    assert not server.dump_dir.exists()


def refused(server: Server) -> str:
    """Wait for the server to exit by itself, and return the reason it gave."""
    try:
        code = server.process.wait(timeout=200)
    finally:
        stop(server)
    text = server.log.read_text(errors="replace")
    assert code != 0, text[-2000:]
    assert "The server is fired up" not in text
    lines = [line for line in text.splitlines() if line.startswith(layout.MARKER_REFUSED)]
    assert lines, text[-3000:]
    reason: str = json.loads(lines[0].removeprefix(layout.MARKER_REFUSED))["reason"]
    return reason


@pytest.mark.parametrize("version", install.VERSIONS)
def test_a_model_without_sglangs_capture_is_refused(version: str, make_model: MakeModel, tmp_path: Path) -> None:
    config = json.loads((make_model("llama", "bfloat16") / "config.json").read_text())
    config |= {"architectures": ["GemmaForCausalLM"], "model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh"}
    model = tmp_path / "gemma"
    model.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).write_bytes((make_model("llama", "bfloat16") / name).read_bytes())
    (model / "config.json").write_text(json.dumps(config))
    server = launch(install.ensure(version), model, tmp_path, ["--load-format", "dummy"])
    assert "GemmaForCausalLM has no set_eagle3_layers_to_capture" in refused(server)


def test_a_boundary_that_the_model_does_not_have_is_refused(make_model: MakeModel, tmp_path: Path) -> None:
    model = make_model("llama", "bfloat16")
    env = {layout.ENV_BOUNDARIES: "2,9"}
    server = launch(install.ensure("0.5.9"), model, tmp_path, env=env)
    assert "outside 0 to 8" in refused(server)
    assert "Load weight begin" not in server.log.read_text(errors="replace")


@pytest.mark.parametrize("version", install.VERSIONS)
def test_a_value_that_means_nothing_is_refused_before_the_weights(
    version: str, make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model("llama", "bfloat16")
    server = launch(install.ensure(version), model, tmp_path, env={layout.ENV_FINAL: "middle"})
    assert refused(server) == "EAGLE3_FINAL='middle': it may be pre or post"
    assert "Load weight begin" not in server.log.read_text(errors="replace")


def test_a_dump_directory_that_cannot_be_written_is_refused(make_model: MakeModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    env = {layout.ENV_DUMP_DIR: str(tmp_path / "file" / "dump")}
    server = launch(install.ensure("0.5.23"), make_model("llama", "bfloat16"), tmp_path, env=env)
    assert "Not a directory" in refused(server)
    assert "Load weight begin" not in server.log.read_text(errors="replace")
