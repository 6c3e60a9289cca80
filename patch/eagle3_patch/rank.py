"""What one scheduler process does around each of its forwards: check the first ones, and on the writing rank take rows."""

from __future__ import annotations

from typing import Any

from eagle3_patch import markers, selfcheck
from eagle3_patch.capture import Capture
from eagle3_patch.model import Decoder, UnknownModel, gather_over_ranks
from eagle3_patch.taps import Taps


class Rank:
    """One tensor-parallel rank of a configured server. Used from the scheduler's thread alone."""

    def __init__(self, decoder: Decoder, taps: Taps, capture: Capture | None) -> None:
        self._taps = taps
        self._norm = decoder.inner.norm
        self._capture = capture
        """Only where this rank writes."""
        self._checked: set[bool] = set()
        self._due: int | None = None
        """Rows of the batch that runs now, while it is still to be checked."""

    def begin(self, batch: Any, scheduler: Any) -> None:
        """A batch is about to run.

        Raises:
            Exception: it is not built as in any known SGLang.
        """
        if batch.forward_mode.name not in ("EXTEND", "MIXED"):
            return
        if len(self._checked) < 2:
            rows = sum(int(extend) for extend in batch.extend_lens)
            self._due = rows if rows and (rows > selfcheck.FUSION_LIMIT) not in self._checked else None
        wanted = self._capture is not None and self._capture.begin(batch, scheduler)
        if wanted or self._due is not None:
            self._taps.open()

    def collect(self, given_ids: Any, hidden: Any, aux: Any, forward_batch: Any) -> None:
        """The states of the batch are at the logits processor.

        Raises:
            selfcheck.Wrong: they are not right on some rank; nothing was written yet.
        """
        if self._due is not None:
            rows, self._due = self._due, None
            self._check(rows, hidden, aux)
        if self._capture is not None:
            self._capture.collect(given_ids, hidden, aux, forward_batch)

    def finish(self) -> None:
        """The batch has run without an error.

        Raises:
            UnknownModel: it was to be checked and its states never came by.
        """
        if self._due is not None:
            raise UnknownModel("the first forward did not pass the logits processor: its states cannot be checked")

    def end(self) -> None:
        """The batch is over, well or not."""
        self._due = None
        self._taps.close()
        if self._capture is not None:
            self._capture.end()

    def _check(self, rows: int, hidden: Any, aux: Any) -> None:
        names = [f"boundary {boundary}" for boundary in self._taps.boundaries] + ["the final state"]
        report = selfcheck.check(
            lambda: (self._taps.columns(hidden, aux), self._taps.before_norm(), hidden),
            self._norm.forward,  # not a call of the module, which would run the hooks
            names,
            rows,
            gather_over_ranks,
        )
        self._checked.add(rows > selfcheck.FUSION_LIMIT)
        if self._capture is not None:
            markers.checked(vars(report))
