"""What a folder made by an extraction looks like: by its names, and for ``.pt`` files by the keys inside.

Each kind is also the full list of the names that such an extraction writes: nothing else inside is ever counted or removed.

Formats: our dataset and speculators 0.5 and newer (``data-*.arrow`` beside ``hidden_states/hs_<row>.safetensors``), speculators 0.3 to
0.4 (``data_<i>.pt``), SpecForge and AngelSlim (``rows_<a>-<b>/data_<i>.ckpt``), ModelOpt (``<id>.pt`` with ``aux_hidden_states``), and the
hand-made dumps (``aux_0.pt aux_1.pt aux_2.pt final.pt`` a folder).
"""

from __future__ import annotations

import dataclasses
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.files import read_json
from eagle3_remote.server.dumpdir import OWNER_FILE

OURS = ".eagle3"
"""The hidden folder of a dataset of ours."""
EXPORTED = ".eagle3-export"
"""The hidden folder of an export of ours."""
_PEEK = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Part:
    """The names that belong into one folder: files by pattern, folders by pattern with their own part."""

    files: str = r"(?!)"
    folders: tuple[tuple[str, Part], ...] = ()
    check: Callable[[int], bool] | None = None
    """Looks into a file (an open descriptor) before it counts."""
    needs: str = ""
    """Files count only in a folder that holds one of this pattern; the others in it mean nothing by their names alone."""

    def file(self, name: str) -> bool:
        """Whether a file of that name belongs here."""
        return re.fullmatch(self.files, name) is not None

    def folder(self, name: str) -> Part | None:
        """The part of a folder of that name, if it belongs here."""
        return next((part for pattern, part in self.folders if re.fullmatch(pattern, name)), None)


@dataclasses.dataclass(frozen=True)
class Kind:
    """One way to lay out hidden states."""

    word: str
    ours: bool
    part: Part
    means: str


def torch_keys(descriptor: int) -> frozenset[str]:
    """Which of the keys that name hidden states occur in a ``torch.save`` file; nothing is unpickled.

    Reads the pickle of a zip file (torch 1.6 and newer), else the beginning of the file.
    """
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as archive:
                name = next((one for one in archive.namelist() if one.endswith("data.pkl")), None)
                if name is None:
                    return frozenset()
                with archive.open(name) as pickled:
                    data = pickled.read(_PEEK)
        except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError):
            file.seek(0)
            data = file.read(_PEEK)
    # As pickle writes a key: X (BINUNICODE) and a four-byte length before the word.
    return frozenset(key for key in _KEYS if b"X" + len(key).to_bytes(4, "little") + key.encode() in data)


_KEYS = (
    "input_ids",
    "hidden_state",
    "hidden_states",
    "aux_hidden_state",
    "aux_hidden_states",
    "target_hiddens",
    "target",
)


def _has_modelopt_keys(descriptor: int) -> bool:
    return {"input_ids", "aux_hidden_states"} <= torch_keys(descriptor)


def _has_states(descriptor: int) -> bool:
    keys = torch_keys(descriptor)
    return "input_ids" in keys and bool(keys & {"hidden_state", "hidden_states", "aux_hidden_state", "target_hiddens"})


_VOCAB = r"token_freq\.pt|(d2t|t2d)(-\d+)?\.(npy|pt)"
_ROWS = Part(r"hs_\d+\.safetensors(\.lock)?|\.tmp-.*")
_ARROW = rf"data-\d+-of-\d+\.arrow|dataset_info\.json|state\.json|{_VOCAB}"
_VOCAB_FOLDER = ("vocab_mapping", Part(r"vocab_mapping\.pt"))
_CKPT = Part(r"data_\d+\.ckpt(\.gz)?")
_LOOSE = r"aux_\d+\.pt|final\.pt|meta\.json|done|error\.json"
_REQUEST = Part(rf"{re.escape(layout.STATES_FILE)}|{_LOOSE}|\..*\.tmp.*|.*\.tmp")

DATASET = Kind(
    "dataset",
    True,
    # the hidden folder last: it is by it that a half removed dataset is still known
    Part(_ARROW, (("hidden_states", _ROWS), _VOCAB_FOLDER, (re.escape(OURS), Part(r".*")))),
    "a dataset of ours",
)
DUMPS = Kind(
    "dumps",
    True,
    Part(re.escape(OWNER_FILE), ((rf"{re.escape(layout.FOLDER_PREFIX)}.+", _REQUEST),)),
    "dumps of a patched server",
)
FOREIGN_DUMPS = Kind("dumps", False, DUMPS.part, "dumps of a server that was not started from here")
SPECULATORS = Kind(
    "speculators",
    False,
    Part(rf"{_ARROW}|{_ROWS.files}", (("hidden_states", _ROWS),)),
    "states in speculators' layout (0.5 and newer)",
)
SPECULATORS_V1 = Kind(
    "speculators-v1",
    False,
    Part(rf"data_\d+\.pt|sample_lengths\.json|data_config\.json|{_VOCAB}"),
    "states in speculators' v1 layout",
)
SPECFORGE = Kind(
    "specforge",
    False,
    Part(_CKPT.files, ((r"rows_\d+-\d+", _CKPT), _VOCAB_FOLDER)),
    "states in SpecForge's layout",
)
MODELOPT = Kind("modelopt", False, Part(r".+\.pt", check=_has_modelopt_keys), "states in ModelOpt's layout")
_AUX = r"aux_\d+\.pt"
HAND_MADE = Kind(
    "hand-made",
    False,
    Part(_LOOSE, ((r".+", Part(_LOOSE, needs=_AUX)),), needs=_AUX),
    "states as single aux and final files",
)


def _export(word: str, means: str, part: Part) -> Kind:
    """The names of one format, and the hidden folder last: it is by it that a half removed export is still known."""
    hidden = (re.escape(EXPORTED), Part(r".*", ((r"tmp-.*", Part(r".*")),)))
    return Kind(word, True, dataclasses.replace(part, folders=(*part.folders, hidden)), means)


_PT_SAMPLE = Part(r"aux_\d+\.pt|(final|input_ids|loss_mask)\.pt|meta\.json|done")
EXPORTS = {
    name: _export(f"export-{name}", f"an export of ours as {name}", part)
    for name, part in (
        ("speculators", Part(_ARROW, (("hidden_states", _ROWS), _VOCAB_FOLDER))),
        ("speculators-v1", SPECULATORS_V1.part),
        ("specforge", Part(_VOCAB, ((r"rows_\d+-\d+", _CKPT), _VOCAB_FOLDER))),
        ("modelopt", Part(rf"\d+\.pt|{_VOCAB}")),
        ("pt", Part(_VOCAB, ((r"sample_\d+", _PT_SAMPLE),))),
    )
}
"""By the name that ``export --format`` has for it."""
EXPORT = _export("export", "an export of ours that does not tell its format", Part())

KINDS = (
    *(DATASET, DUMPS, FOREIGN_DUMPS, SPECULATORS, SPECULATORS_V1, SPECFORGE, MODELOPT, HAND_MADE),
    *EXPORTS.values(),
    EXPORT,
)


def recognise(path: str, files: Sequence[str], folders: Sequence[str]) -> Kind | None:
    """What the folder `path` is, by (some of) the names in it; `None`: nothing that we know."""
    if OURS in folders and _holds(path, OURS, ("journal.sqlite3", "manifest.json", "merge.json", "lock")):
        return DATASET
    if EXPORTED in folders and _holds(path, EXPORTED, ("manifest.json", "lock")):
        request = export_manifest(path).get("request")
        return EXPORTS.get(str(request.get("format")), EXPORT) if isinstance(request, dict) else EXPORT
    if OWNER_FILE in files:
        return DUMPS
    if _is_hand_made(files):
        return HAND_MADE
    requests = [name for name in folders if name.startswith(layout.FOLDER_PREFIX)]
    if any(_holds(path, name, (layout.STATES_FILE, "aux_0.pt")) for name in requests[:20]):
        return FOREIGN_DUMPS
    if any(re.fullmatch(_ROWS.files, name) and name.startswith("hs_") for name in files):
        return SPECULATORS
    if "hidden_states" in folders and any(name.endswith(".arrow") for name in files):
        inner = os.path.join(path, "hidden_states")
        if any(name.startswith("hs_") for name in first_names(inner)):
            return SPECULATORS
    return _by_torch(path, files, folders) or _by_folders(path, folders)


def export_manifest(path: str) -> dict[str, Any]:
    """What an export of ours says about itself; empty where it does not."""
    return read_json(Path(path) / EXPORTED / "manifest.json") or {}


def _by_torch(path: str, files: Sequence[str], folders: Sequence[str]) -> Kind | None:
    rows = [name for name in folders if re.fullmatch(r"rows_\d+-\d+", name)]
    for name in rows[:3]:
        if any(_CKPT.file(one) for one in first_names(os.path.join(path, name))):
            return SPECFORGE
    numbered = next((name for name in files if re.fullmatch(r"data_\d+\.pt", name)), None)
    if numbered and ({"data_config.json", "sample_lengths.json"} & set(files) or _peek(path, numbered, _has_states)):
        return SPECULATORS_V1
    checkpoint = next((name for name in files if re.fullmatch(r"data_\d+\.ckpt", name)), None)
    if checkpoint and _peek(path, checkpoint, _has_states):
        return SPECFORGE
    saved = next((name for name in files if name.endswith(".pt") and name != "token_freq.pt"), None)
    if saved and _peek(path, saved, _has_modelopt_keys):
        return MODELOPT
    return None


def _by_folders(path: str, folders: Sequence[str]) -> Kind | None:
    """A folder of hand-made samples: one of its first folders holds them."""
    for name in folders[:3]:
        if _is_hand_made(first_names(os.path.join(path, name))):
            return HAND_MADE
    return None


def _is_hand_made(files: Sequence[str]) -> bool:
    return "aux_0.pt" in files and "final.pt" in files


def _holds(path: str, folder: str, names: Sequence[str]) -> bool:
    return any(os.path.lexists(os.path.join(path, folder, name)) for name in names)


def _peek(path: str, name: str, check: Callable[[int], bool]) -> bool:
    try:
        descriptor = os.open(os.path.join(path, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return check(descriptor)
    finally:
        os.close(descriptor)


def first_names(path: str, limit: int = 200) -> list[str]:
    """Some names in a folder; none where it cannot be read or is a link."""
    if os.path.islink(path):
        return []
    names: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= limit:
                    break
    except OSError:
        pass
    return names
