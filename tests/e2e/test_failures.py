"""What goes wrong after a run has begun: the cause in a sentence, the exit code, and nothing lost or left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Box, console, free_port, make


@pytest.fixture
def words(box: Box, model: Path) -> list[str]:
    """A run of six good samples that would work."""
    data = box.root / "tokenized_data.jsonl"
    data.write_text("".join(f'{{"input_ids": {list(range(5, 25 + n))}}}\n' for n in range(6)))
    out = box.root / "dataset"
    return [
        *box.login,
        *box.server_words(),
        f"--model={model}",
        f"--data={data}",
        f"--out={out}",
        f"--port={free_port()}",
    ]


def said(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("eagle3-console: ")]
    assert "Traceback" not in err
    return line


def test_a_flag_that_sglang_does_not_know_is_refused_before_anything_starts(words: list[str], box: Box) -> None:
    ran = console("run", *words, "--server-arg=--no-such-flag", "--json")
    assert (ran.code, ran.out) == (5, ""), ran.err
    assert f"SGLang {box.bed.version} has no --no-such-flag" in said(ran.err)
    assert console("server", "status", *box.login, "--json").json["phase"] == "not-running"


def test_weights_that_are_cut_off(words: list[str], box: Box, model: Path) -> None:
    broken = box.root / "broken"
    broken.mkdir()
    for path in model.iterdir():
        data = path.read_bytes()
        (broken / path.name).write_bytes(data if path.suffix != ".safetensors" else data[: len(data) // 2])
    ran = console("run", *words, f"--model={broken}", "--json")
    assert ran.code == 6, ran.err
    assert "safetensor" in said(ran.err).lower()


def test_bad_samples_are_listed_and_the_rest_is_stored(words: list[str], box: Box, model: Path) -> None:
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    good = list(range(5, 30))
    rows: list[object] = [good, [*good, vocab], [-1], [], good[::-1], {"input_ids": good, "loss_mask": [1]}]
    data = box.root / "tokenized_data.jsonl"
    data.write_text(
        "".join(json.dumps(row if isinstance(row, dict) else {"input_ids": row}) + "\n" for row in rows) + "{\n"
    )
    ran = console("run", *words, "--json")
    assert ran.code == 7, ran.err
    extract = ran.json["extract"]
    assert (extract["total"], extract["stored"], extract["rejected"], extract["failed"]) == (7, 2, 5, 0)
    problems = {problem["where"]: problem["reason"] for problem in ran.json["report"]["problems"]}
    assert set(problems) == {"line 2", "line 3", "line 4", "line 6", "line 7"}
    assert str(vocab) in problems["line 2"]
    assert ran.json["verify"]["ok"] is True
    assert sorted(path.name for path in (box.root / "dataset" / "hidden_states").iterdir()) == [
        "hs_0.safetensors",
        "hs_1.safetensors",
    ]
    assert console("extract", "status", *box.login, "--json").code == 7

    # the same dataset with other layers is another dataset: refused, and what is there stays as it is
    before = (box.root / "dataset" / "hidden_states" / "hs_0.safetensors").read_bytes()
    assert console("server", "stop", *box.login).code == 0
    other = console("run", *words, "--boundaries=1,2,3", "--json")
    assert other.code == 5, other.err
    assert "boundaries" in said(other.err)
    assert (box.root / "dataset" / "hidden_states" / "hs_0.safetensors").read_bytes() == before


def test_the_line_is_shown_and_nothing_runs(words: list[str], box: Box) -> None:
    words = [word for word in words if not word.startswith(("--data=", "--out="))]
    ran = console("server", "start", *words, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert "--disable-radix-cache" in ran.json["argv"]
    assert ran.json["env"]["PYTHONPATH"].split(":")[0].endswith("eagle3_patch/entry")
    assert console("server", "status", *box.login, "--json").json["phase"] == "not-running"


def test_interrupted_with_ctrl_c(words: list[str], box: Box) -> None:
    data = box.root / "tokenized_data.jsonl"
    make(box.bed, "make_data.py", data, "--samples", "1500")
    running = subprocess.Popen(
        [sys.executable, "-m", "eagle3_console", "run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "of 1,500 stored" in line:
            break
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "go on" in said(rest)
    assert console("extract", "status", *box.login, "--json").json["state"] in ("running", "finishing")
