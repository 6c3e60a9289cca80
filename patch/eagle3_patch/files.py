"""Write one request's folder as `layout` describes it: built under a hidden name, renamed, ``done`` last.

Nothing is synced: a dump lives in memory until the extraction has stored it, and a box that loses power loses it whole.
Nothing is mapped either: writing to a mapped file on a full tmpfs is a SIGBUS, a plain write is an OSError.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from eagle3_patch import layout

_TEMPORARY = ".e3-tmp-"
_MOST_PARTS = 512
"""Fewer than IOV_MAX, which is 1024 on Linux."""
_number = itertools.count()
_SAFETENSORS_DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int64: "I64"}


def write_request(
    dump_dir: str, meta: dict[str, Any], states: Sequence[torch.Tensor], token_ids: Sequence[torch.Tensor]
) -> None:
    """Write a complete request; one that is there already with ``done`` is left as it is.

    Args:
        states: pieces ``[rows, len(boundaries) + 1, hidden]`` on the CPU, contiguous, in the order of their positions.
        token_ids: pieces int64 ``[rows]``, likewise.
        meta: the values of `layout.META_KEYS`.

    Raises:
        OSError: no space, no folder, no right to write.
    """
    final = os.path.join(dump_dir, layout.folder_name(meta["rid"]))
    if os.path.exists(os.path.join(final, layout.DONE_FILE)):
        return
    temporary = _temporary_folder(dump_dir)
    try:
        if meta["layout"] == "pt":
            _write_pt(temporary, states)
        else:
            _write_safetensors(os.path.join(temporary, layout.STATES_FILE), states, token_ids)
        _write_json(os.path.join(temporary, layout.META_FILE), meta)
        _put_in_place(dump_dir, temporary, final)
        _create(os.path.join(final, layout.DONE_FILE))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_error(dump_dir: str, rid: str, reason: str) -> None:
    """Leave ``error.json`` in the request's folder, unless the request is there complete.

    Raises:
        OSError: it cannot be written.
    """
    final = os.path.join(dump_dir, layout.folder_name(rid))
    if os.path.exists(os.path.join(final, layout.DONE_FILE)):
        return
    temporary = _temporary_folder(dump_dir)
    try:
        _write_json(os.path.join(temporary, layout.ERROR_FILE), {"rid": rid, "reason": reason})
        _put_in_place(dump_dir, temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def prepare_folder(dump_dir: str) -> None:
    """Make the dump directory, prove that it can be written, and remove what a killed server left under hidden names.

    Raises:
        OSError: it cannot be made or written.
    """
    os.makedirs(dump_dir, exist_ok=True)
    for name in os.listdir(dump_dir):
        if name.startswith(_TEMPORARY) and not _is_alive(name[len(_TEMPORARY) :].split("-")[0]):
            shutil.rmtree(os.path.join(dump_dir, name), ignore_errors=True)
    os.rmdir(_temporary_folder(dump_dir))


def _is_alive(pid: str) -> bool:
    return not pid.isdigit() or os.path.exists(f"/proc/{pid}")


def _temporary_folder(dump_dir: str) -> str:
    os.makedirs(dump_dir, exist_ok=True)
    path = os.path.join(dump_dir, f"{_TEMPORARY}{os.getpid()}-{next(_number)}")
    os.mkdir(path)
    return path


def _put_in_place(dump_dir: str, temporary: str, final: str) -> None:
    """Rename into place; an unfinished or failed folder of the same request gives way."""
    try:
        os.rename(temporary, final)
    except OSError:
        if not os.path.isdir(final):
            raise
        aside = _temporary_folder(dump_dir)
        os.rename(final, os.path.join(aside, "old"))
        os.rename(temporary, final)
        shutil.rmtree(aside, ignore_errors=True)


def _write_safetensors(path: str, states: Sequence[torch.Tensor], token_ids: Sequence[torch.Tensor]) -> None:
    """One file, piece after piece, so that the request is never copied together in memory first."""
    rows = sum(piece.shape[0] for piece in states)
    ids_bytes, states_bytes = size_of(token_ids), size_of(states)
    header = {
        "token_ids": {"dtype": "I64", "shape": [rows], "data_offsets": [0, ids_bytes]},
        "hidden_states": {
            "dtype": _SAFETENSORS_DTYPES[states[0].dtype],
            "shape": [rows, *states[0].shape[1:]],
            "data_offsets": [ids_bytes, ids_bytes + states_bytes],
        },
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    start = memoryview(len(text).to_bytes(8, "little") + text)
    with open(path, "xb", buffering=0) as file:
        _write_all(file.fileno(), [start, *(_raw(piece) for piece in itertools.chain(token_ids, states))])


def _write_pt(folder: str, states: Sequence[torch.Tensor]) -> None:
    columns = states[0].shape[1]
    names = [f"aux_{index}.pt" for index in range(columns - 1)] + ["final.pt"]
    for column, name in enumerate(names):
        with open(os.path.join(folder, name), "xb") as file:
            torch.save(torch.cat([piece[:, column] for piece in states]), file)


def size_of(pieces: Iterable[torch.Tensor]) -> int:
    """Bytes of the values."""
    return sum(piece.numel() * piece.element_size() for piece in pieces)


def _raw(piece: torch.Tensor) -> memoryview:
    return memoryview(piece.reshape(-1).view(torch.uint8).numpy())


def _write_all(descriptor: int, parts: list[memoryview]) -> None:
    """One system call where the kernel takes it all: after each one this thread queues for the interpreter."""
    while parts:
        written = os.writev(descriptor, parts[:_MOST_PARTS])
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if written:
            parts[0] = parts[0][written:]


def _write_json(path: str, value: dict[str, Any]) -> None:
    with open(path, "x", encoding="utf-8") as file:
        json.dump(value, file)


def _create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
