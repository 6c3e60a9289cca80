"""What can be told of a dataset's directory by looking. Standard library only: the agent looks too."""

from __future__ import annotations

import os

INFO_FILE = "dataset_info.json"
STATE_FILE = "state.json"
HIDDEN = ".eagle3"
STATES = "hidden_states"
JOURNAL = f"{HIDDEN}/journal.sqlite3"
LOCK = f"{HIDDEN}/lock"


def foreign(root: str) -> str | None:
    """A name in the directory that belongs to a dataset, but to none of ours."""
    if os.path.exists(os.path.join(root, JOURNAL)):
        return None
    for name in os.listdir(root):
        made = name == STATES and not _only_begun(root)
        if made or name.endswith(".arrow") or name in (INFO_FILE, STATE_FILE):
            return name
    return None


def among_states(root: str) -> str | None:
    """The dataset among whose states or own files a directory lies or would lie: nothing else may be made there."""
    folder = os.path.abspath(root)
    while (above := os.path.dirname(folder)) != folder:
        name = os.path.basename(folder)
        if name in (STATES, HIDDEN) and os.path.exists(os.path.join(above, JOURNAL)):
            return above
        folder = above
    return None


def _only_begun(root: str) -> bool:
    """Whether an extraction of ours made the directories and was killed before its journal; ``.eagle3`` is made first."""
    return os.path.isdir(os.path.join(root, HIDDEN)) and not os.listdir(os.path.join(root, STATES))
