"""What can be told of a dataset's directory by looking. Standard library only: the agent looks too."""

from __future__ import annotations

import os

INFO_FILE = "dataset_info.json"
STATE_FILE = "state.json"
HIDDEN = ".eagle3"
STATES = "hidden_states"
JOURNAL = f"{HIDDEN}/journal.sqlite3"
LOCK = f"{HIDDEN}/lock"
MANIFEST = f"{HIDDEN}/manifest.json"


def foreign(root: str) -> str | None:
    """A name in the directory that belongs to a dataset, but to none of ours."""
    if os.path.exists(os.path.join(root, JOURNAL)):
        return None
    for name in os.listdir(root):
        made = name == STATES and not _only_begun(root)
        if made or name.endswith(".arrow") or name in (INFO_FILE, STATE_FILE):
            return name
    return None


def dataset_above(root: str) -> str | None:
    """The dataset of ours in whose folder a directory lies or would lie, however deep; symbolic links are followed."""
    folder = os.path.realpath(root)
    while (above := os.path.dirname(folder)) != folder:
        if any(os.path.exists(os.path.join(above, name)) for name in (JOURNAL, MANIFEST)):
            return above
        folder = above
    return None


def misplaced(out: str, model: str = "", data: str = "") -> str | None:
    """Why no dataset may lie at `out` and what to do, as the rest of a sentence that begins with `out`; `None`: it may.

    Args:
        model: the model's folder; empty: not known.
        data: the input, a file or a folder; empty: not known.
    """
    if (above := dataset_above(out)) is not None:
        return (
            f"lies inside the dataset {above} and would be copied, moved and removed with it: "
            "choose a folder outside of it"
        )
    here = os.path.realpath(out)
    for what, path in (("model", model), ("data", data)):
        if not path or not os.path.exists(path):
            continue
        there = os.path.realpath(path)
        shared = os.path.commonpath((here, there))
        if shared not in (here, there):
            continue
        if here == there:
            where = f"is where the {what} itself lies"
        else:
            where = f"holds the {what} {path}" if shared == here else f"lies inside the {what}'s folder {path}"
        return f"{where}, and a dataset needs a folder of its own: choose another one"
    return None


def _only_begun(root: str) -> bool:
    """Whether an extraction of ours made the directories and was killed before its journal; ``.eagle3`` is made first."""
    return os.path.isdir(os.path.join(root, HIDDEN)) and not os.listdir(os.path.join(root, STATES))
