"""The two ends of a model that its hidden states can be held against: the final norm and lm_head, read from its safetensors.

Needs numpy. Which of ``w`` and ``1 + w`` a norm multiplies with is not asked but tried: the states themselves tell.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
from collections.abc import Sequence
from typing import Any

from eagle3_remote.extract.scan import to_float32
from eagle3_remote.extract.statesfile import ITEM_BYTES

NORM_NAMES = (
    "model.norm.weight",
    "language_model.model.norm.weight",
    "model.language_model.norm.weight",
    "language_model.norm.weight",
)
HEAD_NAMES = ("lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight")
EMBEDDING_NAMES = (
    "model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.embed_tokens.weight",
)
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MAX_HEADER = 512 * 1024 * 1024
_PIECE_ROWS = 2048
_POST_WITHIN = 0.02
"""How near to 1 the root mean square of a normalised row is, its weights divided out (bf16 rounding is 0.002)."""

_TIE = 0.05
"""Logits nearer than this share of their own spread are one in bf16."""


class NoWeights(Exception):
    """The weights cannot be held against the states; the text says why."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where a tensor lies."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    begin: int

    def rows(self, start: int, stop: int) -> Any:
        """float32 rows ``start..stop`` of a tensor of any rank.

        Raises:
            NoWeights: it cannot be read, or is of a type that is not plain (quantised).
        """
        import numpy

        if self.dtype not in ITEM_BYTES:
            raise NoWeights(f"{os.path.basename(self.path)} holds it as {self.dtype}, which is not a plain float type")
        width = math.prod(self.shape[1:])
        try:
            with open(self.path, "rb") as file:
                file.seek(self.begin + start * width * ITEM_BYTES[self.dtype])
                raw = file.read((stop - start) * width * ITEM_BYTES[self.dtype])
        except OSError as error:
            raise NoWeights(f"{self.path} cannot be read: {error.strerror}") from None
        words = numpy.frombuffer(raw, dtype="<u4" if self.dtype == "F32" else "<u2")
        if len(words) != (stop - start) * width:
            raise NoWeights(f"{self.path} is cut short")
        return to_float32(numpy, words, self.dtype).reshape(stop - start, *self.shape[1:])


@dataclasses.dataclass(frozen=True)
class Ends:
    """The final norm's weight and lm_head (or the tied embedding) of one model."""

    norm: Any
    """float32 ``[hidden]``."""
    epsilon: float
    head: Tensor | None
    """``[vocabulary, hidden]``; `None`: not found or quantised."""

    def looks_normalised(self, final: Any) -> bool:
        """Whether final states, float32 ``[rows, hidden]``, are those after the final norm: its weights divided out, each row has size 1."""
        import numpy

        for weight in (self.norm, 1 + self.norm):
            usable = numpy.abs(weight) > 1e-3
            sizes = numpy.sqrt(numpy.square(final[:, usable] / weight[usable]).mean(axis=-1))
            if numpy.abs(numpy.median(sizes) - 1) < _POST_WITHIN:
                return True
        return False

    def agreement(self, final: Any, tokens: Sequence[int], state: str) -> float:
        """The share of rows whose most likely next token is the server's own, ties within rounding counted for it.

        Args:
            final: float32 ``[rows, hidden]``, one last row a prompt.
            tokens: the server's greedy choice after each.
            state: ``pre`` or ``post``, as the states are declared.
        """
        import numpy

        ways = (self.norm, 1 + self.norm) if state == "pre" else (None,)
        found = []
        for weight in ways:
            rows = final
            if weight is not None:
                rows = final / numpy.sqrt(numpy.square(final).mean(axis=-1, keepdims=True) + self.epsilon) * weight
            found.append(float(self._is_greedy(rows, numpy.array(tokens)).mean()))
        return max(found)

    def _is_greedy(self, rows: Any, tokens: Any) -> Any:
        """Per row, whether no logit is clearly larger than the token's. lm_head is read piece by piece."""
        import numpy

        assert self.head is not None
        vocabulary, every = self.head.shape[0], numpy.arange(len(rows))
        best, own = numpy.full(len(rows), -numpy.inf), numpy.full(len(rows), -numpy.inf)
        total, squares = numpy.zeros(len(rows)), numpy.zeros(len(rows))
        for start in range(0, vocabulary, _PIECE_ROWS):
            stop = min(start + _PIECE_ROWS, vocabulary)
            logits = rows @ self.head.rows(start, stop).T
            best = numpy.maximum(best, logits.max(axis=1))
            here = (tokens >= start) & (tokens < stop)
            own[here] = logits[every[here], tokens[here] - start]
            total, squares = total + logits.sum(axis=1), squares + numpy.square(logits).sum(axis=1)
        spread = numpy.sqrt(numpy.maximum(squares / vocabulary - numpy.square(total / vocabulary), 0))
        return best - own <= _TIE * spread


def read_ends(model: str) -> Ends:
    """The final norm and lm_head of the model in a directory.

    Raises:
        NoWeights: they are not there, not plain, or the model has another kind of norm.
    """
    config = _json(os.path.join(model, "config.json"))
    text = {**config, **config["text_config"]} if isinstance(config.get("text_config"), dict) else config
    epsilon = text.get("rms_norm_eps")
    if not isinstance(epsilon, float):
        raise NoWeights(f"{model}/config.json names no rms_norm_eps, so its final norm is of another kind")
    tensors = _Tensors(model)
    norm = tensors.first(NORM_NAMES)
    if norm is None or norm.shape != (text.get("hidden_size"),):
        raise NoWeights(f"there is no weight of a final norm in {model} (looked for {', '.join(NORM_NAMES)})")
    head = tensors.first(HEAD_NAMES)
    if head is None and text.get("tie_word_embeddings", config.get("tie_word_embeddings")):
        head = tensors.first(EMBEDDING_NAMES)
    if head is not None and (head.dtype not in ITEM_BYTES or len(head.shape) != 2 or head.shape[1] != norm.shape[0]):
        head = None
    return Ends(norm.rows(0, norm.shape[0]), epsilon, head)


class _Tensors:
    """The tensors of a model directory by name; only headers are read."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._headers: dict[str, tuple[dict[str, Any], int]] = {}
        if os.path.exists(os.path.join(model, _INDEX)):
            files = _json(os.path.join(model, _INDEX)).get("weight_map")
            self._files = {str(name): str(file) for name, file in files.items()} if isinstance(files, dict) else {}
        elif os.path.exists(os.path.join(model, _SINGLE)):
            self._files = dict.fromkeys(self._header(_SINGLE)[0], _SINGLE)
        else:
            raise NoWeights(f"{model} has no {_SINGLE} and no {_INDEX}")

    def first(self, names: tuple[str, ...]) -> Tensor | None:
        """The first of `names` that is there."""
        for name in names:
            if name in self._files:
                header, begin = self._header(self._files[name])
                try:
                    facts = header[name]
                    shape = tuple(int(one) for one in facts["shape"])
                    offset = int(facts["data_offsets"][0])
                    path = os.path.join(self._model, self._files[name])
                    return Tensor(path, str(facts["dtype"]), shape, begin + offset)
                except (KeyError, TypeError, ValueError, IndexError) as error:
                    raise NoWeights(f"{self._files[name]} does not describe {name}: {error!r}") from None
        return None

    def _header(self, file: str) -> tuple[dict[str, Any], int]:
        if file not in self._headers:
            path = os.path.join(self._model, file)
            try:
                with open(path, "rb") as opened:
                    (length,) = struct.unpack("<Q", opened.read(8))
                    if length > _MAX_HEADER:
                        raise ValueError(f"its header claims {length} bytes")
                    self._headers[file] = json.loads(opened.read(length)), 8 + length
            except (OSError, ValueError, struct.error) as error:
                raise NoWeights(f"{path} cannot be read: {error}") from None
        return self._headers[file]


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        raise NoWeights(f"{path} cannot be read: {error}") from None
    return value if isinstance(value, dict) else {}
