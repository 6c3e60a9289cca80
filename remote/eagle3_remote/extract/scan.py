"""A file of hidden states read once: checksum, copy and look at the values from one pass through the cache.

One core does all of it at 1.9 GB/s from memory into the page cache (2.0 GHz Xeon, rows of 16 KiB); the interpreter's lock is free while
bytes are read, summed, compared and written, so that threads add up.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import math
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from eagle3_remote.extract.statesfile import ITEM_BYTES, Header

PIECE = 512 * 1024
"""Bytes looked at together: they stay in a core's own cache from the read to the write."""
SAMPLED_ROWS = 32
MIN_ROWS = 16
"""Shorter samples have no norms: the first tokens of a prompt are outliers in most models."""

_WORDS = {
    "BF16": ("<u2", 0x7FFF, 0x7F80),
    "F16": ("<u2", 0x7FFF, 0x7C00),
    "F32": ("<u4", 0x7FFFFFFF, 0x7F800000),
}
"""dtype -> word, all bits but the sign, exponent of all ones (NaN and infinity are at or above it)."""


@dataclasses.dataclass(frozen=True)
class Read:
    """What one pass found out."""

    size: int
    crc32: int
    ids: bytes
    """Little-endian int64."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """The first wrong row. `kind`: ``non-finite`` or ``zero-row``."""

    kind: str
    reason: str


class SourceLost(OSError):
    """The file that is read failed, not the one that is written."""


def read_once(source: int, header: Header, target: int | None, rows: Callable[[int, memoryview], None] | None) -> Read:
    """Read the whole file once, and on the way write it to `target` and show `rows` every piece of the hidden states.

    Args:
        source, target: open descriptors; `target` is written from its position on.
        rows: called with the first token's index of each piece and its bytes, whole tokens of [layers, hidden].

    Raises:
        SourceLost: reading failed, or the file is shorter than its header says.
        OSError: writing failed.
    """
    token = header.shape[1] * header.shape[2] * ITEM_BYTES[header.dtype]
    step = max(1, PIECE // token) * token
    buffer = memoryview(bytearray(max(step, PIECE)))
    crc, ids = 0, bytearray()
    spans = sorted(((0, min(header.hidden[0], header.ids[0])), header.hidden, header.ids))
    for begin, end in spans:
        for at in range(begin, end, step):
            piece = buffer[: min(step, end - at)]
            _fill(source, piece, at)
            crc = zlib.crc32(piece, crc)
            if (begin, end) == header.ids:
                ids += piece
            elif (begin, end) == header.hidden and rows is not None:
                rows((at - begin) // token, piece)
            if target is not None:
                _write(target, piece)
    return Read(header.size, crc, bytes(ids))


def _fill(source: int, piece: memoryview, at: int) -> None:
    done = 0
    while done < len(piece):
        try:
            got = os.preadv(source, [piece[done:]], at + done)
        except OSError as error:
            raise SourceLost(error.errno, error.strerror) from None
        if got == 0:
            raise SourceLost(errno.EIO, "the file became shorter while it was read")
        done += got


def _write(target: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]


class Values:
    """Looks at every value of one file: finite, no row all zero, and the size of some rows. Needs numpy."""

    def __init__(self, header: Header) -> None:
        import numpy

        self._numpy = numpy
        self._tokens, self._layers, self._hidden = header.shape
        self._dtype = header.dtype
        self._word, self._magnitude, self._exponent = _WORDS[header.dtype]
        self._scratch = numpy.empty(0, dtype=self._word)
        count = min(SAMPLED_ROWS, self._tokens - 1) if self._tokens >= MIN_ROWS else 0
        self._sampled = [1 + at * (self._tokens - 1) // count for at in range(count)]
        self._seen: list[Any] = []
        self.fault: Fault | None = None

    def rows(self, first: int, piece: memoryview) -> None:
        """Look at the tokens from `first` on."""
        numpy = self._numpy
        words = numpy.frombuffer(piece, dtype=self._word)
        if len(self._scratch) < len(words):
            self._scratch = numpy.empty(len(words), dtype=self._word)
        magnitudes = self._scratch[: len(words)]
        numpy.bitwise_and(words, magnitudes.dtype.type(self._magnitude), out=magnitudes)
        largest = magnitudes.reshape(-1, self._hidden).max(axis=1)
        if self.fault is None and (largest.max() >= self._exponent or largest.min() == 0):
            self.fault = self._first_fault(first, largest)
        tokens = words.reshape(-1, self._layers, self._hidden)
        chosen = [row - first for row in self._sampled if first <= row < first + len(tokens)]
        if chosen:
            self._seen.append(_sizes(numpy, tokens[chosen], self._dtype))

    def _first_fault(self, first: int, largest: Any) -> Fault:
        wrong = (largest >= self._exponent) | (largest == 0)
        at = int(wrong.argmax())
        where = f"row {first + at // self._layers}, layer {at % self._layers}"
        if largest[at] >= self._exponent:
            return Fault("non-finite", f"{where} holds NaN or infinity")
        return Fault("zero-row", f"{where} is all zero")

    def norms(self) -> tuple[float, ...]:
        """The median root mean square of a row, a layer; empty for samples below `MIN_ROWS` tokens or with a fault."""
        if not self._seen or self.fault is not None:
            return ()
        return tuple(float(x) for x in self._numpy.median(self._numpy.concatenate(self._seen), axis=0))


def _sizes(numpy: Any, tokens: Any, dtype: str) -> Any:
    """Root mean square of each row; `tokens` are the words of [tokens, layers, hidden]."""
    values = to_float32(numpy, tokens, dtype)
    return numpy.sqrt(numpy.square(values).mean(axis=-1))


def to_float32(numpy: Any, words: Any, dtype: str) -> Any:
    """The float32 values of words as they lie in a safetensors file (``BF16``, ``F16`` or ``F32``)."""
    if dtype == "BF16":
        return (words.astype("<u4") << 16).view("<f4")
    return words.view({"F16": "<f2", "F32": "<f4"}[dtype]).astype("<f4")


LIMIT = 3.0
"""log2: eight times larger or smaller than the median is not plausible ..."""
SPREAD = 12.0
"""... unless the samples themselves spread more: so many median deviations."""


def middle(sizes: Iterable[float]) -> tuple[float, float]:
    """Median, and how far from it is too far, of log2 sizes."""
    known = sorted(sizes)
    median = known[len(known) // 2]
    deviation = sorted(abs(one - median) for one in known)[len(known) // 2]
    return median, allowed(deviation)


def allowed(deviation: float) -> float:
    """How far from the median is too far, by the median deviation."""
    return max(LIMIT, SPREAD * deviation)


def logs(norms: Sequence[float]) -> list[float]:
    """log2, with a floor for zero."""
    return [math.log2(max(one, 1e-30)) for one in norms]


class Norms:
    """The sizes of the rows stored so far, layer by layer, and whether a new sample's are like them. Robust: medians.

    Rows that are partial sums, of another layer or normalised once too often differ by their size; a sample's text does not change the
    median of its rows much.
    """

    KEPT = 512
    NEEDED = 16

    def __init__(self) -> None:
        self._seen: collections.deque[list[float]] = collections.deque(maxlen=self.KEPT)
        self._known: list[tuple[float, float]] = []
        self._until_known = self.NEEDED

    def add(self, norms: Sequence[float]) -> None:
        """A sample that is right."""
        if not norms:
            return
        self._seen.append(logs(norms))
        self._until_known -= 1
        if self._until_known == 0:
            self._known = [middle(layer) for layer in zip(*self._seen, strict=True)]
            self._until_known = self.NEEDED

    def judge(self, norms: Sequence[float]) -> str | None:
        """Why these sizes are not plausible; `None`: they are, or too little is known."""
        for layer, (size, (median, far)) in enumerate(zip(logs(norms), self._known, strict=False)):
            if abs(size - median) > far:
                return (
                    f"layer {layer} has rows of size {norms[layer]:.3g}, those of the other samples {2**median:.3g} "
                    "(median root mean square)"
                )
        return None
