"""Whether one dump is what was asked for. Runs on a worker thread; needs numpy."""

from __future__ import annotations

import array
import dataclasses
import json
import os
from typing import Any

from eagle3_patch import layout
from eagle3_remote.extract.errors import SampleFailure
from eagle3_remote.extract.scan import Norms, Values
from eagle3_remote.extract.statesfile import DTYPES, Header

EXPLANATIONS = {
    "rows": "the dumps do not have one row a token: a prefix cache or a cut prefill; start the server with --disable-radix-cache",
    "prompt-tokens": "the server counts other prompt tokens than were sent: something between changes the prompts",
    "cached-tokens": "the server took tokens from its prefix cache, so their rows were never computed: start it with "
    "--disable-radix-cache and let nobody else use it",
    "token-ids": "the dumps hold other token ids than were sent: rows of another request, or a patch that does not fit this SGLang",
    "layers": "the server captures other layers than asked: start it with the boundaries of this extraction",
    "hidden-size": "the dumped rows have another width than the model's hidden size: another model, or partial sums of one rank",
    "dtype": "the dtype of the rows changed within the dataset: the server was started with another --dtype",
    "non-finite": "the model's hidden states are not finite (NaN or infinity): dtype or quantisation of the model, or a broken kernel",
    "zero-row": "whole rows are zero: the patch captured buffers that were never written",
    "norms": "the rows of a layer are far larger or smaller than before: partial sums of one rank, another layer, or a norm too often; "
    "restart the server and look at what changed",
    "kills-server": "the server dies of these samples: look at its log; leave them out, or give it more memory",
    "dump-unreadable": "the dumps cannot be read: patch and extraction are of different releases, or the dump directory is not the server's",
    "dump-error": "the patch could not write the dumps; its reason is beside each sample",
    "dump-full": "the patch finds no space in the dump directory: free it or use another one",
    "dump-missing": "the server answers but no dump appears: the patch is not loaded, or it writes to another dump directory",
    "timeout": "the server accepts requests but does not answer: look at its log; it may hang",
    "server-error": "the server answers with errors: look at its log",
    "refused": "the server refuses the requests; its words are beside each sample",
    "input-changed": "the data file is not the one that was read when this dataset was begun",
}


@dataclasses.dataclass(frozen=True)
class Expected:
    """What every dump of a run must show."""

    boundaries: tuple[int, ...]
    final: str
    hidden_size: int
    dtype: str | None
    """Of the rows stored so far; `None` before the first."""


@dataclasses.dataclass(frozen=True)
class Checked:
    """A good dump: the dtype of its rows, what the patch said of itself, and the size of its rows (see `scan.Values`)."""

    dtype: str
    meta: dict[str, Any]
    norms: tuple[float, ...] = ()


def unreadable(folder: str, error: Exception) -> SampleFailure:
    """What a dump that cannot be read means."""
    if os.path.exists(os.path.join(folder, "aux_0.pt")):
        text = (
            f"it is in the layout 'pt', an extraction reads 'safetensors': start the server without {layout.ENV_LAYOUT}"
        )
        return SampleFailure("dump-unreadable", text)
    return SampleFailure("dump-unreadable", f"the dump cannot be read: {error}")


class DumpCheck:
    """Checks one complete dump against the ids that were sent (``array('q')``), while it is copied. One use each."""

    def __init__(self, expected: Expected, ids: array.array[int], norms: Norms) -> None:
        self._expected, self._ids, self._known = expected, ids, norms
        self._meta: dict[str, Any] = {}
        self._dtype = ""
        self._values: Values | None = None

    def open(self, folder: str, header: Header) -> None:
        """Check what the patch said and the file's shape.

        Raises:
            SampleFailure: the first thing that is wrong, its kind one of `EXPLANATIONS`.
        """
        try:
            with open(os.path.join(folder, layout.META_FILE), encoding="utf-8") as file:
                self._meta = json.load(file)
        except (OSError, ValueError) as error:
            raise unreadable(folder, error) from None
        check_layers(self._meta, self._expected.boundaries, self._expected.final)
        tokens, layers = len(self._ids), len(self._expected.boundaries) + 1
        if header.shape[0] != tokens:
            raise SampleFailure("rows", f"{tokens} tokens were sent, the dump has {list(header.shape)} states")
        if header.shape[1] != layers:
            raise SampleFailure("layers", f"the dump has {header.shape[1]} layers, not {layers} (boundaries and final)")
        if header.shape[2] != self._expected.hidden_size:
            raise SampleFailure(
                "hidden-size",
                f"the rows have width {header.shape[2]}, the model's hidden size is {self._expected.hidden_size}",
            )
        self._dtype = DTYPES[header.dtype]
        if self._expected.dtype is not None and self._dtype != self._expected.dtype:
            raise SampleFailure("dtype", f"the rows are {self._dtype}, those stored before {self._expected.dtype}")
        self._values = Values(header)

    def rows(self, first: int, piece: memoryview) -> None:
        """Look at a piece of the rows."""
        assert self._values is not None
        self._values.rows(first, piece)

    def close(self, ids: bytes) -> Checked:
        """The verdict.

        Raises:
            SampleFailure: as `open`.
        """
        assert self._values is not None
        if ids != self._ids.tobytes():
            got = array.array("q", ids)
            at = next(i for i, (a, b) in enumerate(zip(got, self._ids, strict=True)) if a != b)
            raise SampleFailure("token-ids", f"token {at} was sent as {self._ids[at]}, the dump has {got[at]}")
        fault = self._values.fault
        if fault is not None:
            raise SampleFailure(fault.kind, fault.reason)
        norms = self._values.norms()
        strange = self._known.judge(norms)
        if strange is not None:
            raise SampleFailure("norms", strange)
        return Checked(self._dtype, self._meta, norms)


def check_layers(meta: dict[str, Any], boundaries: tuple[int, ...], final: str) -> None:
    """Hold what the patch says of a dump against what is asked.

    Raises:
        SampleFailure: it captures other layers, or the final state on the other side of the final norm.
    """
    found = tuple(meta.get("boundaries", ()))
    if found != boundaries:
        raise SampleFailure("layers", f"the dump has boundaries {list(found)}, asked were {list(boundaries)}")
    if meta.get("final") != final:
        raise SampleFailure("layers", f"the dump's final state is {meta.get('final')}-norm, asked was {final}-norm")
