"""``init``: the set-up without a screen, against a real agent on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.cli import main
from eagle3_console.profiles import hosts
from tests.console.homes import make_user


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_user(tmp_path, monkeypatch)


class Init:
    """The command, with what it printed last."""

    def __init__(self, user: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._box = str(user / "box")
        self._capsys = capsys
        self.err = ""

    def __call__(self, *words: str) -> tuple[int, Any]:
        code = main(["init", "local", "--box-dir", self._box, "--quiet", "--json", *words])
        out, self.err = self._capsys.readouterr()
        return code, json.loads(out) if out else None


@pytest.fixture
def init(user: Path, capsys: pytest.CaptureFixture[str]) -> Init:
    return Init(user, capsys)


WORDS = ("--model", "~/models/Kimi K2.5", "--data", "~/tokenized_data.jsonl", "--out", "~/hidden")


def test_it_proposes_and_saves_what_the_screen_does(user: Path, init: Init) -> None:
    code, told = init(*WORDS)
    assert (code, told["ready"], told["failures"], told["missing"]) == (0, True, [], []), told
    assert told["values"]["boundaries"] == told["proposals"]["boundaries"]["text"] == "2,30,58"
    assert "N = 61 layers" in told["proposals"]["boundaries"]["reason"]
    assert "--disable-radix-cache" in told["launch"]["argv"]
    profile = Path(told["profile"])
    assert profile == user / "cfg/eagle3-console/profiles/kimi-k2.5-local.toml"
    assert f'data = "{user}/tokenized_data.jsonl"' in profile.read_text()
    assert hosts.remembered("local") == "kimi-k2.5-local"
    assert not (user / "hidden").exists()
    code, told = init(*WORDS)
    assert (code, told) == (2, None)
    assert "There is a profile kimi-k2.5-local already" in init.err
    code, told = init(*WORDS, "--replace", "--boundaries", "3,31,59")
    assert code == 0
    assert "boundaries = [3, 31, 59]" in profile.read_text()


def test_what_stands_against_it_is_told_and_nothing_is_saved(user: Path, init: Init) -> None:
    code, told = init(*WORDS[:-1], "~/no/where", "--boundaries", "2,99")
    assert (code, told["ready"], told["profile"]) == (5, False, "")
    assert any("there is no folder" in one for one in told["failures"])
    assert any("boundary 99 is asked" in one for one in told["failures"])
    code, told = init(*WORDS[:2])
    assert (code, told["missing"]) == (2, ["the field Data is empty", "the field Output is empty"])
    code, told = init(*WORDS, "--dry-run")
    assert (code, told["ready"], told["profile"]) == (0, True, "")
    code, told = init(*WORDS, "--name", "../x")
    assert (code, told) == (2, None)
    assert not (user / "cfg").exists()


def test_the_text_says_the_same(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "local", "--box-dir", str(user / "box"), *WORDS, "--name", "mine"]) == 0
    out = capsys.readouterr().out
    for part in (
        "ok   Data         data: jsonl",
        "set  Boundaries   2,30,58: 2, N//2 and N-3",
        "plan         disk: ",
        "sglang.launch_server",
        "mine.toml",
    ):
        assert part in out, out
