"""Command lines as people write them."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from eagle3_console.cli import build_parser, parse
from eagle3_console.dial import named


@pytest.mark.parametrize(
    "line",
    [
        "merge login --out /data/hidden /a /b",
        "merge login /a /b --out /data/hidden",
        "merge --out /data/hidden login /a /b",
        "merge login /a --out /data/hidden /b",
        "merge --json login --by symlink /a /b --out /data/hidden",
    ],
)
def test_shards_may_stand_anywhere(line: str) -> None:
    args = parse(line.split())
    assert (args.command, args.host, args.out, args.paths) == ("merge", "login", "/data/hidden", ["/a", "/b"])


@pytest.mark.parametrize(
    "line", ["gpu -F cfg -i key", "-F cfg gpu -i key", "-i key -F cfg gpu", "open -F cfg -i key gpu"]
)
def test_a_box_is_named_again_with_what_leads_to_it(line: str) -> None:
    """Options may stand before the host, as with ssh."""
    args = parse(line.split())
    assert (args.command, args.host, args.ssh_config, args.identity) == ("open", "gpu", "cfg", ["key"])
    again = named(args)
    assert named(parse(shlex.split(again))) == again == "gpu --ssh-config cfg --identity key"


def test_a_command_behind_options_is_no_host(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["-F", "cfg", "verify", "gpu"])
    assert ended.value.code == 2
    assert "the command comes first: eagle3-console verify HOST" in capsys.readouterr().err


def test_space_needs_no_action() -> None:
    for line in ("space gpu --depth 3 /data /mnt", "space show gpu /data /mnt --depth 3"):
        args = parse(line.split())
        assert (args.action, args.host, args.depth, args.paths) == ("show", "gpu", 3, ["/data", "/mnt"])
    args = parse(["space", "reclaim", "gpu", "--json", "/data/hidden", "--confirm", "hidden"])
    assert (args.action, args.host, args.path, args.confirm) == ("reclaim", "gpu", "/data/hidden", "hidden")


@pytest.mark.parametrize(
    "line", ["merge login --out /o /a --nonsense", "doctor gpu /data", "space gpu --nonsense", "extract submit gpu"]
)
def test_what_is_not_known_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["status", "open"])
def test_a_box_that_is_missing_is_asked_for_once(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([line])
    assert capsys.readouterr().err.rstrip().endswith("the following arguments are required: HOST")
    assert parse([line, "a"]).more == []
    assert parse([line, "a", "b", "c"]).more == ["b", "c"]


def _actions(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Name -> (line of the help, parser) of what may be said next; empty: there is no choice."""
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return {
        line.dest: (line.help or "", group.choices[line.dest]) for group in groups for line in group._choices_actions
    }


def test_a_line_of_the_help_that_lists_actions_lists_all() -> None:
    commands = _actions(build_parser()[0])
    listed = {name for name, (line, command) in commands.items() if any(one in line for one in _actions(command))}
    assert listed >= {"extract", "server", "jobs", "profile", "config"}
    for name in listed:
        line, command = commands[name]
        assert set(_actions(command)) <= set(re.findall(r"[\w-]+", line)), name
