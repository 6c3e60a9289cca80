"""The doctor tells what is there, for real trees on disk, and leaves nothing behind."""

from __future__ import annotations

import ast
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.box import doctor
from eagle3_remote.protocol import DoctorQuery, Facts, Gauges, decode, encode

SOURCE = Path(str(doctor.__file__)).read_text()


def make_python(env: Path, packages: dict[str, str], base: str = sys.executable) -> Path:
    """A virtual environment with packages that are only metadata and an importable name."""
    subprocess.run([base, "-m", "venv", "--without-pip", str(env)], check=True)
    (site,) = env.glob("lib/python*/site-packages")
    for name, version in packages.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (site / name).mkdir()
        # Importing any of them would be a fault: it takes seconds and may need a GPU.
        (site / name / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return env / "bin" / "python"


def ask(home: Path, query: DoctorQuery, **env: str) -> Facts:
    """As the console does: the source on standard input, before anything is deployed."""
    done = subprocess.run(
        [sys.executable, "-I", "-", json.dumps(encode(query))],
        input=SOURCE.encode(),
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), **env},
        timeout=120,
        check=True,
    )
    lines = done.stdout.decode().splitlines()
    assert lines[-2] == doctor.SENTINEL
    return decode(Facts, json.loads(lines[-1]))


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def test_pythons_in_the_usual_places(home: Path) -> None:
    every = dict.fromkeys(doctor.NEEDED, "1.0")
    make_python(home / "venv", {"sglang": "0.5.9", **every})
    make_python(home / "work" / ".venv", {"sglang": "0.5.23", "torch": "2.9", "numpy": "2"})
    make_python(home / "plain", {"torch": "2.9"})
    conda = make_python(home / "miniconda3" / "envs" / "sg", {"sglang": "0.5.10.post1", **every})
    before = tree(home)
    facts = ask(home, DoctorQuery())
    assert tree(home) == before
    ours = {one.path: one for one in facts.pythons if one.path.startswith(str(home))}
    assert set(ours) == {str(home / "venv/bin/python"), str(home / "work/.venv/bin/python"), str(conda)}
    assert ours[str(home / "venv/bin/python")].sglang == "0.5.9"
    assert ours[str(home / "venv/bin/python")].missing == ()
    assert ours[str(home / "work/.venv/bin/python")].missing == ("safetensors", "httpx", "pyarrow")
    assert (ours[str(conda)].found_by, ours[str(conda)].sglang) == ("conda", "0.5.10.post1")
    assert {"PATH", "~/venv", "$VIRTUAL_ENV"} <= set(facts.looked_in)


def test_the_named_python_comes_first_and_is_always_told(home: Path) -> None:
    plain = make_python(home / "plain", {})
    make_python(home / "venv", {"sglang": "0.5.9"})
    active = make_python(home / "active", {"sglang": "0.5.23"})
    facts = ask(home, DoctorQuery(python=str(plain)), VIRTUAL_ENV=str(home / "active"))
    # a server of somebody else may run on this machine; its Python is told as well
    ours = [one for one in facts.pythons if one.path.startswith(str(home))]
    assert [one.found_by for one in ours] == ["--python", "VIRTUAL_ENV", str(home / "venv")]
    assert facts.pythons[0] == ours[0]
    assert [one.path for one in ours[:2]] == [str(plain), str(active)]
    assert (ours[0].sglang, ours[1].sglang) == ("", "0.5.23")
    missing = ask(home, DoctorQuery(python="/no/such/python")).pythons[0]
    assert (missing.found_by, missing.error) == ("--python", "No such file or directory")


def test_the_running_servers_own_python(home: Path) -> None:
    python = make_python(home / "somewhere" / "deep" / "env", {"sglang": "0.5.23"})
    server = subprocess.Popen([str(python), "-c", "import time; time.sleep(600)", "-m", "sglang.launch_server"])
    try:
        (found,) = [one for one in ask(home, DoctorQuery()).pythons if one.path == str(python)]
        assert found.found_by == "running server"
    finally:
        server.kill()
        server.wait()


def test_a_python_that_hangs_or_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = home / "bad"
    bad.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    bad.chmod(0o755)
    assert doctor.python_fact(str(bad))["error"] == "exited with 3: broken"
    bad.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(doctor, "LOOK_TIMEOUT", 0.3)
    assert "gave no answer" in doctor.python_fact(str(bad))["error"]


CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "vocab_size": 163840,
        "max_position_embeddings": 262144,
        "torch_dtype": "bfloat16",
    },
}


def test_model_facts(home: Path) -> None:
    model = home / "my model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    for number in range(3):
        (model / f"model-{number}.safetensors").write_bytes(b"x" * 100)
    (model / "tokenizer.json").write_bytes(b"x" * 999)
    fact = ask(home, DoctorQuery(model="~/my model")).model
    assert fact is not None
    assert fact.path == str(model)
    assert (fact.architecture, fact.num_layers, fact.hidden_size) == ("KimiK25ForConditionalGeneration", 61, 7168)
    assert (fact.vocab_size, fact.context_len, fact.dtype) == (163840, 262144, "bfloat16")
    assert (fact.weight_files, fact.weight_bytes, fact.error) == (3, 300, "")


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (None, "config.json is missing"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"num_hidden_layers": "x"}', "cannot be read"),
    ],
)
def test_models_that_are_none(home: Path, config: str | None, error: str) -> None:
    (home / "model").mkdir()
    if config is not None:
        (home / "model" / "config.json").write_text(config)
    assert error in doctor.model_fact(str(home / "model"))["error"]


def test_no_model_at_all(home: Path) -> None:
    fact = doctor.model_fact(str(home / "none"))
    assert (fact["exists"], fact["error"]) == (False, "there is no such directory")


def test_paths(home: Path) -> None:
    data = home / "-data é.jsonl"
    data.write_text("{}\n")
    facts = ask(home, DoctorQuery(data=str(data), out=str(home / "new"), dump_dir=str(home / "no" / "parent")))
    assert facts.data is not None
    assert (facts.data.exists, facts.data.is_dir, facts.data.size) == (True, False, 3)
    assert facts.out is not None
    assert (facts.out.exists, facts.out.parent_exists, facts.out.writable) == (False, True, True)
    assert facts.out.total > facts.out.free > 0
    assert facts.dump is not None
    assert (facts.dump.parent_exists, facts.dump.writable) == (False, False)
    assert facts.dump.total > 0
    assert not (home / "new").exists()
    assert facts.gauges is not None
    assert {mount.label for mount in facts.gauges.mounts} == {"output", "dump", "home"}
    assert facts.shm_total >= facts.shm_free > 0


def test_what_this_user_may_not_write(home: Path) -> None:
    locked = home / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    may = os.getuid() == 0  # root may everything
    assert doctor.path_fact(str(locked / "out"))["writable"] is may


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_and_who_holds_it(home: Path, family: socket.AddressFamily) -> None:
    with socket.socket(family) as holder:
        holder.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        port = int(holder.getsockname()[1])
        holder.listen()
        fact = ask(home, DoctorQuery(port=port)).port
        assert fact is not None
        assert (fact.port, fact.free) == (port, False)
        assert f"pid {os.getpid()} (user " in fact.holder
    again = ask(home, DoctorQuery(port=port)).port
    assert again is not None
    assert (again.free, again.holder) == (True, "")


def test_a_port_that_somebody_just_left_is_free() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as every server does
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()  # the server's side lingers in TIME_WAIT
    assert doctor.port_fact(port)["free"]


def fake_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(
        home,
        "echo '0, NVIDIA H200, 1024, 143771, 37, 41'\necho '1, NVIDIA H200, [N/A], 143771, [N/A], 40'",
        monkeypatch,
    )
    gauges = decode(Gauges, doctor.gauges({}))
    assert [(gpu.index, gpu.memory_used, gpu.utilisation) for gpu in gauges.gpus] == [(0, 1 << 30, 37), (1, 0, None)]
    assert gauges.gpus[0].memory_total == 143771 * 1024 * 1024


@pytest.mark.parametrize("script", ["exit 9", "echo nonsense", "exec sleep 60"])
def test_a_broken_nvidia_smi_is_no_gpu(home: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(doctor, "SMI_TIMEOUT", 0.3)
    fake_smi(home, script, monkeypatch)
    assert doctor.gpus() == []


def test_it_needs_nothing_of_ours_and_old_pythons_can_read_it() -> None:

    parsed: Any = ast.parse(SOURCE, feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(parsed) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)
