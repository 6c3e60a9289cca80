"""Where nothing is exported from, and nothing into. Standard library alone."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from eagle3_remote.export import formats
from eagle3_remote.export.errors import ExportError
from eagle3_remote.export.source import Source
from eagle3_remote.export.target import Target

REQUEST = {"format": "pt", "final": "pre", "dtype": "bfloat16", "source": "f" * 32}
MANIFEST = {
    "complete": True,
    "boundaries": [2, 4, 5],
    "num_layers": 8,
    "hidden_size": 8,
    "final": "pre",
    "dtype": "bfloat16",
    "model": {"path": "/m", "fingerprint": "f"},
}


def dataset(root: Path, **change: object) -> Path:
    (root / ".eagle3").mkdir(parents=True)
    (root / ".eagle3/lock").touch()
    (root / ".eagle3/manifest.json").write_text(json.dumps({**MANIFEST, **change}))
    return root


def test_a_dataset_that_is_not_whole_or_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not a whole dataset yet: finish it with the same 'extract start' command"):
        Source(str(dataset(tmp_path / "half", complete=False)))
    with pytest.raises(ExportError, match="is no dataset of ours"):
        Source(str(tmp_path))


def test_a_dataset_that_an_extraction_writes(tmp_path: Path) -> None:
    root = dataset(tmp_path / "out")
    holder = os.open(root / ".eagle3/lock", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(ExportError, match=r"An extraction writes .* now: wait for its end"):
        Source(str(root))
    os.close(holder)
    assert Source(str(root)).boundaries == (2, 4, 5)


def test_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").touch()
    with pytest.raises(ExportError, match=r"holds notes.txt, which no export of ours wrote"):
        Target(str(tmp_path / "full"), str(tmp_path / "source"), REQUEST)
    assert os.listdir(tmp_path / "full") == ["notes.txt"]
    with pytest.raises(ExportError, match="is a file: name a directory"):
        Target(str(tmp_path / "full/notes.txt"), str(tmp_path / "source"), REQUEST)
    with pytest.raises(ExportError, match="does not exist: make it or choose another --to"):
        Target(str(tmp_path / "no/where"), str(tmp_path / "source"), REQUEST)


@pytest.mark.parametrize(("to", "source"), [("a", "a"), ("a/b", "a"), ("a", "a/b")])
def test_source_and_target_in_each_other(to: str, source: str, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    with pytest.raises(ExportError, match="lie in each other"):
        Target(str(tmp_path / to), str(tmp_path / source), REQUEST)


def test_two_exports_into_one_directory(tmp_path: Path) -> None:
    first = Target(str(tmp_path / "to"), str(tmp_path / "source"), REQUEST)
    with pytest.raises(ExportError, match=f'Another export writes .*"pid": {os.getpid()}'):
        Target(str(tmp_path / "to"), str(tmp_path / "source"), REQUEST)
    assert not first.complete


def test_a_target_whose_manifest_was_removed_is_not_taken_for_empty(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "to"), str(tmp_path / "source"), REQUEST)
    (tmp_path / "to/7.pt").touch()
    os.unlink(tmp_path / "to/.eagle3-export/manifest.json")
    os.close(target._lock)
    with pytest.raises(ExportError, match=r"manifest.json is gone and .* holds 7.pt"):
        Target(str(tmp_path / "to"), str(tmp_path / "source"), REQUEST)


@pytest.mark.parametrize(
    ("form", "boundaries", "final", "stored", "dtype", "said"),
    [
        ("specforge", (2, 4, 5), "pre", "pre", "", "specforge needs the final state post-norm, pre-norm is asked for"),
        ("speculators-v1", (2, 4, 5), "post", "pre", "", "needs the final state pre-norm, post-norm is asked for"),
        ("speculators", (2, 4, 5), "", "post", "", "that cannot be turned back"),
        ("modelopt", (2, 4, 5), "pre", "post", "", "that cannot be turned back"),
        ("specforge", (2, 4), "", "pre", "", "specforge needs exactly 3 boundaries, the dataset has 2"),
        ("modelopt", (0, 4, 5), "", "pre", "", "has no id for boundary 0, the embeddings"),
        ("pt", (2, 4, 5), "", "pre", "float8_e4m3fn", "Nothing reads float8_e4m3fn in the format pt"),
        ("pt", (2, 4, 5), "", "pre", "int8", "int8 is no dtype to store states in"),
    ],
)
def test_what_a_format_cannot_hold(
    form: str, boundaries: tuple[int, ...], final: str, stored: str, dtype: str, said: str
) -> None:
    with pytest.raises(ExportError, match=said):
        formats.check(formats.FORMATS[form], boundaries, final, stored, dtype)


def test_each_format_has_its_own_final_state() -> None:
    chosen = {name: formats.check(form, (2, 4, 5), "", "pre", "") for name, form in formats.FORMATS.items()}
    assert chosen == {
        "speculators": "pre",
        "speculators-v1": "pre",
        "specforge": "post",
        "modelopt": "post",
        "pt": "pre",
    }
    assert formats.check(formats.FORMATS["pt"], (0, 4, 5), "", "post", "") == "post"
