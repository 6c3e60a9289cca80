"""The README says what the program says."""

from __future__ import annotations

import argparse
import re

import pytest

from eagle3_console.cli import build_parser
from eagle3_console.exit_codes import ExitCode
from eagle3_console.keys import KEYS
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def test_every_command_is_told() -> None:
    _, commands = build_parser()
    for command in commands - {"open"}:
        assert re.search(rf"^\| `{command}[ `]", README, re.MULTILINE), command


def test_every_exit_code_is_told() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert told == {int(code) for code in ExitCode}


def test_every_key_is_told() -> None:
    told = set(re.findall(r"`([^`]+)`", README.split("## Keys of the screen")[1].split("##")[0]))
    digits = {str(number) for number in range(1, 6)}
    shown = {key.shown for key in KEYS} - digits
    assert shown <= told | {"esc"}, shown - told


@pytest.mark.parametrize("line", re.findall(r"^eagle3-console (?:[^\n]*\\\n)*[^\n]*", README, re.MULTILINE))
def test_every_command_line_parses(line: str) -> None:
    words = re.sub(r"\\\n|#.*", "", line).split()[1:]
    parser, commands = build_parser()
    if words[0] not in commands:
        words.insert(0, "open")
    assert isinstance(parser.parse_args(words), argparse.Namespace)
