"""What of a run is stored already, where a dataset of it lies at the output. Pure."""

from __future__ import annotations

import dataclasses

from eagle3_console.setup.draft import Seen
from eagle3_remote.protocol import DatasetLook


def continued(seen: Seen) -> DatasetLook | None:
    """The dataset that would be continued; `None`: there is none, or it is of another model or other data."""
    dataset = seen.out.dataset if seen.out is not None else None
    if dataset is None or not dataset.stored or dataset.same_model is False or other_data(seen):
        return None
    return dataset


def other_data(seen: Seen) -> bool:
    """Whether the dataset at the output was made of other data than what was looked at."""
    made, asked = _inputs(seen)
    return bool(made and asked) and made != asked


def _inputs(seen: Seen) -> tuple[str, str]:
    dataset = seen.out.dataset if seen.out is not None else None
    return dataset.input if dataset is not None else "", seen.data.identity if seen.data is not None else ""


def counted(seen: Seen) -> Seen:
    """With the dataset's own count of its input in place of an estimate, where it has read this input to its end."""
    dataset, data = continued(seen), seen.data
    made, asked = _inputs(seen)
    if data is None or dataset is None or not dataset.samples or not made or made != asked:
        return seen
    exact = dataclasses.replace(data, samples=dataset.samples, tokens=dataset.tokens, exact=True)
    return dataclasses.replace(seen, data=exact)


def nothing_left(dataset: DatasetLook, samples: int) -> bool:
    """Whether all that is asked is stored or was refused.

    Args:
        samples: the first so many are asked; 0: all.
    """
    if not dataset.settled:  # shuffled, a shard, or merged: only the whole can be told
        return dataset.complete and not samples and dataset.stored >= dataset.total
    if samples and (not dataset.lines or samples < dataset.lines):
        return dataset.settled >= samples
    return 0 < dataset.lines <= dataset.settled
