"""Starting the agent with one command: each command more costs two round trips, which is what attaching from far away takes.

The command finds a Python, sees whether the release is there, and becomes the agent, which is told its first requests
with the command already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eagle3_remote import protocol

NO_PYTHON = 9
"""Exit status of the scripts where no Python is found."""
PYTHON_MARK = b"eagle3-python:"
FIRST_CALLS = ("snapshot", "path.complete", "path.look", "jobs.list", "jobs.records", "jobs.show")
"""What may be asked for with the command itself: every user of the box sees a command line, and any other call may hold a secret."""

_SEARCH = """
try() {
  [ -n "$1" ] && [ -x "$1" ] || return 1
  "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 || return 1
  found "$1"
}
try "$1"
[ -n "$VIRTUAL_ENV" ] && try "$VIRTUAL_ENV/bin/python"
[ -n "$CONDA_PREFIX" ] && try "$CONDA_PREFIX/bin/python"
for name in python3 python3.13 python3.12 python3.11 python3.10 python; do
  try "$(command -v $name 2>/dev/null)"
done
for place in /opt/conda /opt/venv /venv "$HOME/venv" "$HOME/.venv" "$HOME/miniconda3" "$HOME/anaconda3" /usr/local /usr; do
  try "$place/bin/python3"
done
exit 9
"""
FIND_PYTHON = (
    """
found() {
  printf 'eagle3-python:%s\\n' "$1"
  exit 0
}
"""
    + _SEARCH
)
"""Script. Argument: a Python to try first."""
START_AGENT = (
    """
home=$2 release=$3 code=$4 requests=$5
[ -n "$release" ] || release="${home:-$HOME/.eagle3-console}/releases/$6"
[ -e "$release/.complete" ] || exit 11
[ -z "$home" ] || { EAGLE3_HOME=$home; export EAGLE3_HOME; }
found() {
  exec "$1" -I -u -c "$code" "$release" "$requests"
}
[ ! -x "$7" ] || found "$7"
"""
    + _SEARCH
)
"""Script. Arguments as `arguments` gives them."""
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from eagle3_remote.agent import main; main()"


def arguments(
    python: str, known: str, home: str, release: str, sha256: str, requests: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The arguments of `START_AGENT`.

    Args:
        python: to try first.
        known: one that was found before on this box; empty: none was.
        home: the box folder; empty: the usual one.
        release: where the release lies; empty: where the bootstrap puts the one named `sha256`.
        requests: see `request`.
    """
    lines = "\n".join(json.dumps(one) for one in requests)
    return (python, home, release, _CODE, lines, sha256, known)


def request(number: int, method: str, params: Any) -> dict[str, Any]:
    """A call as it goes to the agent."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": protocol.encode(params)}
