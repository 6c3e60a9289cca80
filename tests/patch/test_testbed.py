"""The cached environment with a real SGLang: what it says where it cannot be made, and that a broken one is made again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from tests.patch.servers import TESTBED


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "eagle3-console" / "testbeds"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every command of an installation, none of them run; the first one leaves an interpreter behind."""
    seen: list[str] = []

    def step(argv: list[str], log: Path, what: str) -> None:
        seen.append(" ".join(argv))
        if "venv" in argv:
            (Path(argv[-1]) / "bin").mkdir(parents=True)
            (Path(argv[-1]) / "bin" / "python").touch()

    monkeypatch.setattr(install, "_step", step)
    monkeypatch.setattr(install, "offers_cpu_torch", lambda pip: True)
    return seen


@pytest.mark.parametrize("version", install.VERSIONS)
def test_a_test_bed_has_the_sglang_it_names(version: str) -> None:
    bed = install.ensure(version)
    code = "import importlib.metadata as m, pyarrow, httpx, torch; print(m.version('sglang'))"
    done = subprocess.run([str(bed.python), "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == [version], done.stderr
    assert (bed.stubs / "sitecustomize.py").is_file()
    assert bed.env["PYTHONPATH"] == str(bed.stubs)


def test_a_second_call_installs_nothing(empty_cache: Path, steps: list[str]) -> None:
    first = install.ensure("0.5.9")
    made = len(steps)
    assert made == 4
    assert install.ensure("0.5.9") == first
    assert len(steps) == made


def test_a_half_made_environment_is_made_again(empty_cache: Path, steps: list[str]) -> None:
    home = install.ensure("0.5.9").python.parent.parent
    (home / "complete.json").unlink()
    (home / "left over").touch()
    said: list[str] = []
    assert install.ensure("0.5.9", said.append).python.exists()
    assert not (home / "left over").exists()
    assert any("half-made" in line for line in said)
    assert len(steps) == 8


def test_two_at_once_install_once(empty_cache: Path, steps: list[str]) -> None:
    threads = [threading.Thread(target=install.ensure, args=("0.5.9",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(steps) == 4


def test_a_changed_requirement_file_is_another_environment(
    empty_cache: Path, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = install.ensure("0.5.9")
    changed = tmp_path / "requirements.txt"
    changed.write_text("torch\n")
    monkeypatch.setattr(install, "_requirements", lambda version: changed)
    assert install.ensure("0.5.9").python != first.python


def test_an_unknown_version_names_those_there_are() -> None:
    with pytest.raises(install.TestBedUnavailable, match=r"0\.5\.9, 0\.5\.23"):
        install.ensure("0.4.0")


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.platform, "system", lambda: "Darwin")
    with pytest.raises(install.TestBedUnavailable, match="needs Linux on x86-64, this is Darwin"):
        install.ensure()


def test_a_missing_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "NEEDS_PYTHON", (3, 99))
    with pytest.raises(install.TestBedUnavailable, match=r"no python3\.99 is on PATH: install Python 3\.99"):
        install.ensure()


def test_a_small_disk_is_named_and_nothing_is_made(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "NEEDS_BYTES", 10**18)
    with pytest.raises(install.TestBedUnavailable, match="make room or set XDG_CACHE_HOME"):
        install.ensure("0.5.9")
    assert [path.suffix for path in empty_cache.iterdir()] == [".lock"]


def test_without_a_cpu_build_the_cuda_build_is_taken_and_said(
    empty_cache: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "offers_cpu_torch", lambda pip: False)
    monkeypatch.setattr(install, "NEEDS_BYTES_WITH_CUDA", 1)
    said: list[str] = []
    install.ensure("0.5.9", said.append)
    assert any("CUDA build of torch, several GB" in line and "PIP_EXTRA_INDEX_URL" in line for line in said)
    assert len(steps) == 4
    assert not any("index-url" in step for step in steps)


def test_the_cuda_build_asks_for_more_room(
    empty_cache: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "offers_cpu_torch", lambda pip: False)
    monkeypatch.setattr(install, "NEEDS_BYTES_WITH_CUDA", 10**18)
    with pytest.raises(install.TestBedUnavailable, match="with the CUDA build of torch needs 1000000000 GB"):
        install.ensure("0.5.9")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(install.TestBedUnavailable, match="set XDG_CACHE_HOME to a folder of yours"):
        install.ensure("0.5.9")


def test_a_failing_pip_is_told_with_its_last_lines_and_its_log(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "requirements.txt"
    broken.write_text(str(tmp_path / "not-there-1.0-py3-none-any.whl") + "\n")
    monkeypatch.setattr(install, "_requirements", lambda version: broken)
    monkeypatch.setattr(install, "offers_cpu_torch", lambda pip: True)
    with pytest.raises(install.TestBedUnavailable) as caught:
        install.ensure("0.5.9")
    (log,) = empty_cache.glob("*.log")
    assert str(log) in str(caught.value)
    assert "not-there-1.0" in str(caught.value)
    assert "exit code 1" in str(caught.value)


def make_data(out: Path, *args: str) -> list[dict[str, object]]:
    subprocess.run([sys.executable, str(TESTBED / "make_data.py"), str(out), *args], check=True, capture_output=True)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_prepared_data_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    rows = make_data(tmp_path / "a.jsonl", "--seed", "3")
    make_data(tmp_path / "b.jsonl", "--seed", "3")
    make_data(tmp_path / "c.jsonl", "--seed", "4")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "a.jsonl").read_bytes() != (tmp_path / "c.jsonl").read_bytes()
    assert len(rows) == 64
    assert {set(row) == {"input_ids", "loss_mask"} for row in rows} == {True}


def test_prepared_data_have_a_prompt_and_an_answer_of_the_asked_lengths(tmp_path: Path) -> None:
    rows = make_data(
        tmp_path / "a.jsonl", "--samples", "40", "--shortest", "2", "--longest", "30", "--vocab", "50", "--ids"
    )
    lengths = [len(row["input_ids"]) for row in rows]  # type: ignore[arg-type]
    assert (min(lengths), max(lengths)) == (2, 30)
    for row in rows:
        mask = row["loss_mask"]
        assert isinstance(mask, list)
        assert mask == sorted(mask)
        assert (mask[0], mask[-1], len(mask)) == (0, 1, len(row["input_ids"]))  # type: ignore[arg-type]
        assert all(0 <= token < 50 for token in row["input_ids"])  # type: ignore[attr-defined]
    assert len({row["id"] for row in rows}) == 40
