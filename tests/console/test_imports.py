"""What a command loads: the screen's packages only for the screen."""

from __future__ import annotations

import subprocess
import sys

import pytest

_RUN = """
import sys
from eagle3_console import cli
try:
    code = cli.main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print()
print(*sorted({name.split(".")[0] for name in sys.modules} | {name for name in sys.modules if name.startswith("eagle3")}))
"""


def loaded(*words: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", _RUN, *words], capture_output=True, text=True, timeout=60, check=True)
    return set(ran.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("run", "--help"), ("server", "start", "--help")])
def test_help_loads_next_to_nothing(words: tuple[str, ...]) -> None:
    assert not {"asyncio", "textual", "asyncssh", "httpx", "plotext", "eagle3_remote"} & loaded(*words)


def test_headless_commands_load_no_screen() -> None:
    modules = loaded("doctor", "local", "--json")
    assert "eagle3_console.commands" in modules
    assert not {"textual", "plotext", "rich", "asyncssh", "eagle3_console.ui"} & modules


def test_the_console_loads_the_box_side_s_messages_alone() -> None:
    box_side = {
        name for name in loaded("doctor", "local", "--json") if name.startswith(("eagle3_remote", "eagle3_patch"))
    }
    other = {name for name in box_side if not (name + ".").startswith("eagle3_remote.protocol.")}
    assert other == {"eagle3_remote"}
