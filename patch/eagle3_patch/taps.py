"""The places where the states of one prefill come by, on every rank: two hooks and SGLang's own capture."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any

import torch

from eagle3_patch.model import Decoder


@dataclasses.dataclass
class _Seen:
    """What the hooks have seen in the forward that runs now."""

    embeddings: torch.Tensor | None = None
    before_norm: torch.Tensor | None = None


class Taps:
    """The states of a forward. The hooks see a forward only between `open` and `close`, and never change it."""

    def __init__(self, decoder: Decoder, native: tuple[int, ...], boundaries: tuple[int, ...], final: str) -> None:
        self.boundaries = boundaries
        self.hidden_size = decoder.hidden_size
        self._native = native
        self._num_layers = decoder.num_layers
        self._final = final
        self._local = threading.local()
        if 0 in boundaries:
            decoder.inner.layers[0].register_forward_pre_hook(self._on_embeddings, with_kwargs=True)
        decoder.inner.norm.register_forward_hook(self._on_final_norm)

    def open(self) -> None:
        """A forward of this thread begins, whose states are wanted."""
        self._local.seen = _Seen()

    def close(self) -> None:
        """It is over; nothing of it is held any longer."""
        self._local.seen = None

    def before_norm(self) -> torch.Tensor:
        """The residual stream before the final norm, ``[tokens, hidden]``.

        Raises:
            RuntimeError: the hook did not run.
        """
        return self._found(self._seen().before_norm)

    def columns(self, hidden: torch.Tensor, aux: Any) -> list[torch.Tensor]:
        """One ``[tokens, hidden]`` for each boundary, ascending, and the final state last.

        Args:
            hidden: what the logits processor receives: the states after the final norm, of all tokens.
            aux: what it receives of SGLang's capture: `None`, a list (most models), or one packed ``[tokens, n * hidden]``
                (DeepSeek on 0.5.20 and newer).

        Raises:
            RuntimeError: there are not as many states as boundaries, or not of the model's hidden size.
        """
        if aux is None:
            parts = []
        elif isinstance(aux, torch.Tensor):
            parts = list(aux.split(self.hidden_size, dim=-1))
        else:
            parts = list(aux)
        if len(parts) != len(self._native):
            raise RuntimeError(f"SGLang captured {len(parts)} layers of {len(self._native)}")
        seen = self._seen()
        named: dict[int, torch.Tensor | None] = dict(zip(self._native, parts, strict=True))
        named |= {0: seen.embeddings, self._num_layers: seen.before_norm}
        columns = [self._found(named[boundary]) for boundary in self.boundaries]
        columns.append(self._found(seen.before_norm) if self._final == "pre" else hidden)
        if any(column.shape[-1] != self.hidden_size for column in columns):
            raise RuntimeError(f"states of {[tuple(c.shape) for c in columns]} for a hidden size of {self.hidden_size}")
        return columns

    def _seen(self) -> _Seen:
        seen: _Seen | None = getattr(self._local, "seen", None)
        return _Seen() if seen is None else seen

    def _found(self, state: torch.Tensor | None) -> torch.Tensor:
        if state is None:
            raise RuntimeError("a hook on the model did not run (a CUDA graph for prefill runs none)")
        return state

    def _on_embeddings(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen: _Seen | None = getattr(self._local, "seen", None)
        if seen is None:
            return
        with contextlib.suppress(Exception):  # never raise into the forward: what is missing here is noticed later
            hidden: torch.Tensor = kwargs["hidden_states"] if "hidden_states" in kwargs else args[1]
            # a copy, because this buffer becomes the residual stream and is added to in place
            seen.embeddings = hidden.clone()

    def _on_final_norm(self, norm: Any, args: tuple[Any, ...], output: Any) -> None:
        seen: _Seen | None = getattr(self._local, "seen", None)
        if seen is not None:
            # with a residual the norm returns (normed, residual stream); the stream is not touched afterwards
            seen.before_norm = output[1] if isinstance(output, tuple) else args[0]
