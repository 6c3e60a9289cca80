"""What a check of a dataset adds up to, in memory that does not grow with the dataset."""

from __future__ import annotations

import collections
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence

from eagle3_remote.extract.collect import file_name
from eagle3_remote.extract.scan import Norms, allowed, logs
from eagle3_remote.protocol import Problem

SHOWN = 100
"""So many problems are told, the first ones; all are counted."""
_FINE = 4096
"""Sizes of rows are compared in steps of 1/4096 of a doubling."""
_IN_MEMORY = 16 * 1024 * 1024


class Problems:
    """The first `SHOWN` problems, and how many there are."""

    def __init__(self) -> None:
        self.first: list[Problem] = []
        self.count = 0

    def add(self, found: Iterable[Problem]) -> None:
        for problem in found:
            self.count += 1
            if len(self.first) < SHOWN:
                self.first.append(problem)

    def add_names(self, names: Iterable[str], kind: str, text: str) -> None:
        """One of each name; told are the first ones in the order of names."""
        first: list[str] = []
        count = 0
        for name in names:
            count += 1
            first.append(name)
            if len(first) > 2 * SHOWN:
                first = sorted(first)[:SHOWN]
        told = sorted(first)[:SHOWN]
        self.add(Problem(name, kind, text) for name in told)
        self.count += count - len(told)


class Rows:
    """Which rows there are: a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, row: int) -> None:
        if row // 8 >= len(self._bits):
            self._bits.extend(bytes(row // 8 + 1 - len(self._bits)))
        self._bits[row // 8] |= 1 << row % 8

    def __contains__(self, row: int) -> bool:
        return row // 8 < len(self._bits) and bool(self._bits[row // 8] >> row % 8 & 1)


class Sizes:
    """The sizes of the rows of every file, layer by layer: kept in a file of their own until what is usual is known.

    Raises:
        OSError: there is no room for that file where temporary files lie.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by `close`
        self._counted: list[collections.Counter[int]] = []
        self._files = 0

    def add(self, row: int, norms: Sequence[float]) -> None:
        """Those of one file; nothing where it is too short to have any."""
        if not norms:
            return
        sizes = [round(size * _FINE) for size in logs(norms)]
        self._counted += [collections.Counter() for _ in sizes[len(self._counted) :]]
        for counted, size in zip(self._counted, sizes, strict=False):
            counted[size] += 1
        self._file.write(struct.pack(f"<qi{len(sizes)}i", row, len(sizes), *sizes))
        self._files += 1

    def odd(self) -> Iterator[Problem]:
        """Files whose rows are far larger or smaller than those of the others."""
        if self._files < Norms.NEEDED:
            return
        usual = [_middle(counted) for counted in self._counted]
        self._file.seek(0)
        for _ in range(self._files):
            row, layers = struct.unpack("<qi", self._file.read(12))
            sizes = struct.unpack(f"<{layers}i", self._file.read(4 * layers))
            for at, (size, (median, far)) in enumerate(zip((one / _FINE for one in sizes), usual, strict=False)):
                if abs(size - median) > far:
                    text = f"layer {at} has rows of size {2**size:.3g}, the other files {2**median:.3g}"
                    yield Problem(file_name(row), "norms", text)

    def close(self) -> None:
        self._file.close()


def _middle(counted: collections.Counter[int]) -> tuple[float, float]:
    """`scan.middle` of counted sizes."""
    median = _median(counted)
    far: collections.Counter[int] = collections.Counter()
    for size, number in counted.items():
        far[abs(size - median)] += number
    return median / _FINE, allowed(_median(far) / _FINE)


def _median(counted: collections.Counter[int]) -> int:
    before = 0
    for value in sorted(counted):
        before += counted[value]
        if before > counted.total() // 2:
            return value
    raise ValueError("nothing was counted")
