"""The directory that is exported into: who may write it, what request it belongs to, what is there already.

::

    <what the format says>
    .eagle3-export/manifest.json  lock  tmp-<row>   ours; no name in it ends like a sample of any format
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import time
from typing import Any

from eagle3_remote.disk.kinds import EXPORTED
from eagle3_remote.export.errors import ExportError
from eagle3_remote.extract.collect import sync_dir
from eagle3_remote.extract.dataset import difference, write_json

_TMP = "tmp-"


class Target:
    """One target directory, locked for the life of this process.

    Args:
        root: made where it does not exist; its parent must.
        source: the dataset's directory.
        request: what must be the same for an export to be continued.

    Raises:
        ExportError: it cannot be used; the text says why.
    """

    def __init__(self, root: str, source: str, request: dict[str, Any]) -> None:
        self.root = os.path.abspath(root)
        self.ours = os.path.join(self.root, EXPORTED)
        self._manifest_path = os.path.join(self.ours, "manifest.json")
        self._check_place(source)
        try:
            os.makedirs(self.ours, exist_ok=True)
        except OSError as error:
            raise ExportError(f"The target {self.root} cannot be made: {error.strerror}.") from None
        self._lock = self._take_lock()
        self.manifest = self._read_manifest()
        if not self.manifest:
            begun = {"request": request, "source": {"path": os.path.abspath(source)}, "begun_at": time.time()}
            self.manifest = {"format": 1, "complete": False, **begun}
            self.put()
        wrong = difference(self.manifest.get("request", {}), request)
        if wrong is not None:
            raise ExportError(
                f"{self.root} holds another export: {wrong}. Go on with the same request, or choose another --to."
            )
        self._remove_half()

    @property
    def complete(self) -> bool:
        """Whether an earlier run came to its end."""
        return bool(self.manifest.get("complete"))

    def path(self, name: str) -> str:
        """A place below the target; the folder it lies in is made."""
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def tmp(self, row: int) -> str:
        """Where a sample is written before it has its name; nothing lies there."""
        path = os.path.join(self.ours, f"{_TMP}{row}")
        remove(path)
        return path

    def put(self, **facts: Any) -> None:
        """Write the manifest, with `facts` changed.

        Raises:
            OSError: no space, for example.
        """
        self.manifest = {**self.manifest, **facts, "written_at": time.time()}
        write_json(self._manifest_path, self.manifest)
        sync_dir(self.ours)

    def put_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the format, whole or not at all."""
        tmp = os.path.join(self.ours, f"{_TMP}{name}")
        write_json(tmp, value)
        os.replace(tmp, self.path(name))

    def _check_place(self, source: str) -> None:
        here, there = os.path.realpath(self.root), os.path.realpath(source)
        if os.path.commonpath((here, there)) in (here, there):
            raise ExportError(f"{self.root} and the dataset {source} lie in each other: choose another --to.")
        parent = os.path.dirname(self.root)
        if not os.path.isdir(parent):
            raise ExportError(f"The target's parent directory {parent} does not exist: make it or choose another --to.")
        if os.path.exists(self.root) and not os.path.isdir(self.root):
            raise ExportError(f"The target {self.root} is a file: name a directory.")
        if os.path.isdir(self.root) and not os.path.isdir(self.ours):
            names = sorted(os.listdir(self.root))
            if names:
                raise ExportError(
                    f"{self.root} holds {names[0]}, which no export of ours wrote: choose another --to, or an empty directory."
                )

    def _take_lock(self) -> int:
        descriptor = os.open(os.path.join(self.ours, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 4096, 0).decode("utf-8", "replace") or "unknown"
            os.close(descriptor)
            raise ExportError(f"Another export writes {self.root} ({holder}): wait for it or stop it.") from None
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(who).encode(), 0)
        return descriptor

    def _read_manifest(self) -> dict[str, Any]:
        try:
            with open(self._manifest_path, encoding="utf-8") as file:
                value = json.load(file)
        except FileNotFoundError:
            names = [name for name in os.listdir(self.root) if name != EXPORTED]
            if names:
                raise ExportError(
                    f"{self._manifest_path} is gone and {self.root} holds {names[0]}: choose another --to."
                ) from None
            return {}
        except (OSError, ValueError) as error:
            raise ExportError(f"{self._manifest_path} cannot be read ({error}): choose another --to.") from None
        return value if isinstance(value, dict) else {}

    def _remove_half(self) -> None:
        for name in os.listdir(self.ours):
            if name.startswith(_TMP):
                remove(os.path.join(self.ours, name))


def remove(path: str) -> None:
    """Remove a half sample of ours, file or folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
