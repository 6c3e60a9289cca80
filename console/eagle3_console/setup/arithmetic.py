"""How much a run makes: bytes a token, tokens, files, and whether the disk holds them. Pure.

The constants are those by which the extraction itself refuses to start (`eagle3_remote.extract.space`); a test holds them together.
"""

from __future__ import annotations

import contextlib
import dataclasses

from eagle3_console.setup.draft import Draft, Seen, value_of
from eagle3_console.setup.stored import continued, nothing_left
from eagle3_remote.protocol import DataLook

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_ALIASES = {"half": "float16", "float": "float32"}
TOKEN_OVERHEAD = 8 + 16 + 9
"""Beside the states of a token: its id in the file, two int64 in the table, id and mask in the spool."""
FILE_OVERHEAD = 4096 + 256 + 400
FIXED = 6 * 1024 * 1024
REFUSE, WARN = 1.0, 1.2
"""Free space over needed space: below the first nothing is started, below the second it is warned of."""


@dataclasses.dataclass(frozen=True)
class Amount:
    """What a run is going to write."""

    samples: int
    tokens: int
    token_bytes: int
    """Of the states alone."""
    bytes: int
    """On the disk, everything that belongs to the dataset included."""
    left_bytes: int
    """What is still to be written; less than `bytes` where a dataset is continued."""
    files: int
    """Still to be written, one for each sample."""
    left_tokens: int
    """Still to be sent."""


def item_bytes(seen: Seen, draft: Draft) -> int:
    """Bytes of one value; 0: the model is not known. A float32 checkpoint is served in float16 unless the person says else."""
    if seen.model is None or not seen.model.fact.hidden_size:
        return 0
    dtype = seen.model.fact.dtype.removeprefix("torch.") or "bfloat16"
    dtype = "float16" if dtype == "float32" else dtype
    try:
        words = value_of("server_args", draft.texts.get("server_args", ""))
    except ValueError:
        words = ()
    for at, word in enumerate(words):
        said = word.partition("=")[2] or (words[at + 1] if at + 1 < len(words) else "")
        if word.partition("=")[0] == "--dtype" and said != "auto":
            dtype = _ALIASES.get(said, said)
    return ITEM_BYTES.get(dtype, 2)


def token_bytes(seen: Seen, draft: Draft) -> int:
    """Bytes of the states of one token; 0: not known."""
    count = len(seen.model.boundaries) if seen.model is not None else 0
    with contextlib.suppress(KeyError, ValueError):
        count = len(value_of("boundaries", draft.texts["boundaries"]))
    hidden = seen.model.fact.hidden_size if seen.model is not None else 0
    return (count + 1) * hidden * item_bytes(seen, draft)


def amount(seen: Seen, draft: Draft, max_seq_len: int, samples: int) -> Amount | None:
    """What would be written; `None`: model or data are not known.

    Args:
        max_seq_len: samples are cut to this; 0: never.
        samples: only the first so many; 0: all.
    """
    token, data = token_bytes(seen, draft), seen.data
    if not token or data is None or not data.samples:
        return None
    count = min(samples, data.samples) if samples else data.samples
    tokens = round(data.tokens * (count / data.samples) * left_by_cut(data, max_seq_len))
    whole = tokens * (token + TOKEN_OVERHEAD) + count * FILE_OVERHEAD + FIXED
    dataset = continued(seen)
    share = 1.0
    if dataset is not None:
        share = 0.0 if nothing_left(dataset, samples) else 1 - min(dataset.stored / count, 1.0)
    return Amount(count, tokens, token, whole, round(whole * share), round(count * share), round(tokens * share))


def left_by_cut(data: DataLook, max_seq_len: int) -> float:
    """The share of the tokens that a cut leaves, by the samples that were seen."""
    if not max_seq_len or not data.lengths:
        return 1.0
    return sum(min(length, max_seq_len) for length in data.lengths) / sum(data.lengths)


def factor(need: int, free: int) -> float:
    """How many times what is needed is free."""
    return free / need if need else float("inf")
