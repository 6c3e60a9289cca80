"""Command lines as people write them."""

from __future__ import annotations

import pytest

from eagle3_console.cli import parse


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
