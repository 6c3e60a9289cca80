"""A recording opened for reading: where each line lies and when it was written. Nothing is decoded before it is asked for."""

from __future__ import annotations

import bisect
import json
import mmap
import zlib
from array import array
from pathlib import Path
from typing import Any

from eagle3_console import units
from eagle3_console.errors import UsageError
from eagle3_console.recording import form
from eagle3_remote import protocol


class Recording:
    """One file, plain or gzip. A cut or damaged file is good up to its first bad line.

    Attributes:
        header: the first line.
        times: seconds of each line, never falling.
        kinds: kind of each line.
        checkpoints: numbers of the lines that are check-points.
        fault: why it ends where it ends; empty: the session was left there.

    Raises:
        UsageError: no such file, or not a recording that this console can read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fault = ""
        self._data = self._load()
        self.times = array("d")
        self.kinds: list[str] = []
        self.checkpoints: list[int] = []
        self._offsets = array("q")
        self.header = self._read_header()
        self._index()

    def __len__(self) -> int:
        return len(self.times)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.times[-1] if self.times else 0.0

    def until(self, seconds: float) -> int:
        """How many lines were written by then."""
        return bisect.bisect_right(self.times, seconds)

    def last_checkpoint(self, count: int) -> int:
        """Which of `checkpoints` is the last among the first `count` lines; -1: none."""
        return bisect.bisect_left(self.checkpoints, count) - 1

    def data(self, number: int) -> Any:
        """What line `number` says.

        Raises:
            ValueError: the line is damaged.
        """
        start = self._offsets[number]
        end = self._offsets[number + 1]
        return json.loads(self._data[start:end])[2]

    def end_before(self, number: int, why: str) -> None:
        """Line `number` cannot be used: the recording ends before it, and says so."""
        at = units.duration(self.times[number])
        self.fault = f"the recording is damaged at {at} (line {number + 2}: {why}); it plays up to there"
        del self.times[number:], self.kinds[number:], self._offsets[number + 1 :]
        del self.checkpoints[bisect.bisect_left(self.checkpoints, number) :]

    def _load(self) -> bytes | mmap.mmap:
        try:
            with self._path.open("rb") as file:
                if file.read(2) == b"\x1f\x8b":
                    return self._unpack()
                file.seek(0)
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise UsageError(f"The recording {self._path} cannot be read: {error.strerror or error}.") from error
        except ValueError:
            raise UsageError(f"The file {self._path} is empty: nothing was recorded in it.") from None

    def _unpack(self) -> bytes:
        """Small pieces at a time: of a cut or damaged file the good part is kept."""
        unpacker, parts = zlib.decompressobj(wbits=31), []
        why = "it breaks off"
        with self._path.open("rb") as file:
            try:
                while piece := file.read(4096):
                    parts.append(unpacker.decompress(piece))
            except zlib.error as error:
                why = str(error)
        if not unpacker.eof:
            self.fault = f"the recording cannot be unpacked to its end ({why}); it plays up to there"
        return b"".join(parts)

    def _read_header(self) -> form.Header:
        end = self._data.find(b"\n") + 1
        try:
            value = json.loads(self._data[:end])
            header = protocol.decode(form.Header, value)
        except (ValueError, RecursionError):
            raise UsageError(f"The file {self._path} is not a recording of this console.") from None
        if header.format != form.FORMAT:
            raise UsageError(
                f"The recording {self._path} was made by eagle3-console {header.console} in format {header.format}; "
                f"this one reads format {form.FORMAT}."
            )
        self._offsets.append(end)
        return header

    def _index(self) -> None:
        """One pass over the file, which looks at the first bytes and the last of each line alone."""
        names = {name.encode(): name for name in (*form.EVENTS, form.CHECKPOINT, form.END)}
        offset, last, size, find = self._offsets[0], 0.0, len(self._data), self._data.find
        why = ""
        while offset < size:
            end = find(b"\n", offset) + 1
            head = self._data[offset : offset + 48].split(b",", 2)
            try:
                seconds = float(head[0][1:])
                kind = names[head[1][1:-1]]
            except (ValueError, IndexError, KeyError):
                why = "it is not an event"
                break
            if not end or self._data[end - 2 : end] != b"]\n" or not seconds >= last:
                why = "it breaks off" if not end else "it is not whole" if seconds >= last else "its time goes back"
                break
            if kind == form.CHECKPOINT:
                self.checkpoints.append(len(self.times))
            self.times.append(seconds)
            self.kinds.append(kind)
            self._offsets.append(end)
            offset, last = end, seconds
        if self.fault:
            return
        if why and end and find(b"\n", end) >= 0:
            line = len(self.times) + 2
            self.fault = (
                f"the recording is damaged at {units.duration(last)} (line {line}: {why}); it plays up to there"
            )
        elif why or not self.kinds or self.kinds[-1] != form.END:
            self.fault = (
                f"the recording breaks off at {units.duration(last)}: its session was not left, or still goes on"
            )
