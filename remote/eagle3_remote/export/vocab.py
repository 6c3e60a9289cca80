"""Which tokens a drafter's smaller vocabulary holds: ``main([SPEC])`` (JSON) prints one `VocabMapReport` as a JSON line.

Tokens count where loss_mask is 1. The draft vocabulary takes the most frequent ones, at equal counts the lower id, as
speculators does (0.3.0 to 0.9.0, train/vocab_mapping.py); SpecForge breaks ties by the order of reading instead.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from eagle3_remote.export.errors import ExportError
from eagle3_remote.export.run import model_of
from eagle3_remote.export.source import Source
from eagle3_remote.extract.collect import sync_dir
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.facts import read_model
from eagle3_remote.protocol import VocabMapReport, VocabMapSpec, decode, encode


def count(source: Source, vocab_size: int) -> tuple[int, Any]:
    """(samples, int64 ``[vocab_size]`` counts of the tokens where loss_mask is 1).

    Raises:
        ExportError: the dataset is damaged, or holds ids outside the vocabulary.
    """
    import numpy

    counts = numpy.zeros(vocab_size, dtype=numpy.int64)
    samples = 0
    for row in source.samples():
        ids = row.ids[row.mask != 0]
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
            raise ExportError(f"Row {row.row} of {source.dataset.root} has token ids outside 0..{vocab_size - 1}.")
        # a short sample against a big vocabulary: its own ids only
        found, times = numpy.unique(ids, return_counts=True)
        counts[found] += times
        samples += 1
    return samples, counts


def select(counts: Any, draft_vocab: int) -> Any:
    """The `draft_vocab` most frequent ids, ascending, int64; at equal counts, also at none, the lower id."""
    import numpy

    order = numpy.lexsort((numpy.arange(len(counts)), -counts))
    return numpy.sort(order[:draft_vocab]).astype(numpy.int64)


def mapping(counts: Any, draft_vocab: int) -> tuple[Any, Any]:
    """(d2t, t2d): ``d2t`` int64 ``[draft_vocab]`` = target id - draft id; ``t2d`` bool ``[vocab]``: is it in the draft's."""
    import numpy

    chosen = select(counts, draft_vocab)
    t2d = numpy.zeros(len(counts), dtype=bool)
    t2d[chosen] = True
    return chosen - numpy.arange(draft_vocab, dtype=numpy.int64), t2d


def make(spec: VocabMapSpec) -> VocabMapReport:
    """Count, choose and write.

    Raises:
        ExtractionError: the text says why not.
        OSError: the target cannot be written.
    """
    source = Source(spec.dataset)
    vocab_size = read_model(model_of(source, spec.model)).vocab_size
    if spec.draft_vocab > vocab_size:
        raise ExportError(f"The model has {vocab_size} tokens, a draft vocabulary of {spec.draft_vocab} is asked for.")
    files = _names(os.path.abspath(spec.to), spec.draft_vocab)
    samples, counts = count(source, vocab_size)
    total, draft = int(counts.sum()), spec.draft_vocab or vocab_size
    d2t, t2d = mapping(counts, draft)
    for path, what in files:
        _put(path, _contents(what, counts, d2t, t2d))
    for folder in {os.path.dirname(path) for path, _ in files}:
        sync_dir(folder)
    return VocabMapReport(
        dataset=source.dataset.root,
        samples=samples,
        tokens=total,
        distinct=int((counts > 0).sum()),
        vocab_size=vocab_size,
        draft_vocab=draft,
        covered=int(counts[t2d].sum()) / total if total else 1.0,
        files=tuple(path for path, _ in files),
    )


def _names(to: str, draft_vocab: int) -> list[tuple[str, str]]:
    """(path, what) of the files: one ``.pt`` file, or all that trainers look for in a directory."""
    if to.endswith(".pt"):
        files = [(to, "both" if draft_vocab else "token_freq")]
    else:
        if not os.path.isdir(os.path.dirname(to)):
            raise ExportError(
                f"The parent directory {os.path.dirname(to)} does not exist: make it or choose another --to."
            )
        os.makedirs(to, exist_ok=True)
        files = [(os.path.join(to, "token_freq.pt"), "token_freq")]
        if draft_vocab:
            # speculators looks for these two names beside the data; SpecForge and ModelOpt are told where theirs lies
            names = [(f"d2t-{draft_vocab}.npy", "d2t"), (f"t2d-{draft_vocab}.npy", "t2d")]
            names += [("vocab_mapping.pt", "both"), ("d2t.pt", "d2t.pt")]
            files += [(os.path.join(to, name), what) for name, what in names]
    folder = os.path.dirname(files[0][0])
    if not os.path.isdir(folder):
        raise ExportError(f"The directory {folder} does not exist: make it or choose another --to.")
    if os.path.exists(os.path.join(folder, "sample_lengths.json")) or os.path.exists(os.path.join(folder, "data_0.pt")):
        raise ExportError(
            f"{folder} holds samples in the speculators-v1 format, whose loader takes every file that ends in 'pt' for a sample: "
            "choose another --to."
        )
    return files


def _contents(what: str, counts: Any, d2t: Any, t2d: Any) -> bytes:
    import io

    import numpy
    import torch

    buffer = io.BytesIO()
    if what == "token_freq":
        found = counts.nonzero()[0]
        torch.save(dict(zip(found.tolist(), counts[found].tolist(), strict=True)), buffer)
    elif what == "both":
        torch.save({"d2t": torch.from_numpy(d2t), "t2d": torch.from_numpy(t2d)}, buffer)
    elif what == "d2t.pt":
        torch.save(torch.from_numpy(d2t), buffer)
    else:
        numpy.save(buffer, d2t if what == "d2t" else t2d)
    return buffer.getvalue()


def _put(path: str, data: bytes) -> None:
    """Write by tmp, fsync and rename; what lies there already must be the same.

    Raises:
        ExportError: another file lies there.
    """
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        pass
    else:
        raise ExportError(
            f"{path} is there already and holds something else, perhaps an earlier count: remove it or choose another --to."
        )
    tmp = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp")
    with open(tmp, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(tmp, path)


def main(argv: Sequence[str]) -> int:
    """Print the report, or ``{"refused": sentence}`` and give 5."""
    try:
        report = make(decode(VocabMapSpec, json.loads(argv[0])))
    except (ExtractionError, OSError) as error:
        sys.stdout.write(json.dumps({"refused": str(error)}) + "\n")
        return 5
    sys.stdout.write(json.dumps(encode(report)) + "\n")
    return 0
