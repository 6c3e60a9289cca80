"""The rows of the dataset as Hugging Face ``save_to_disk`` leaves them: an Arrow IPC stream and two JSON files.

Written with pyarrow alone. ``_format_type: torch`` is what speculators' ``ArrowDataset`` needs to get tensors (0.5.0 to 0.9.0).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from eagle3_remote.extract.collect import sync_dir
from eagle3_remote.extract.dataset import ARROW_FILE, INFO_FILE, STATE_FILE, Dataset, write_json
from eagle3_remote.extract.input import Sample

_BATCH_ROWS, _BATCH_TOKENS = 1000, 1_000_000
_LIST = {"_type": "Sequence", "feature": {"_type": "Value", "dtype": "int64"}}
FEATURES = {"input_ids": _LIST, "loss_mask": _LIST, "seq_len": {"_type": "Value", "dtype": "int64"}}


def write(dataset: Dataset, rows: Iterable[Sample], fingerprint: str) -> None:
    """Write the three files; the Arrow file's name appears first and ``state.json``, which makes it a dataset, last.

    Raises:
        OSError: for example no space; nothing half lies under a final name.
    """
    import pyarrow as pa

    columns = [("input_ids", pa.list_(pa.int64())), ("loss_mask", pa.list_(pa.int64())), ("seq_len", pa.int64())]
    schema = pa.schema(columns, metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})})
    tmp = os.path.join(dataset.ours, ARROW_FILE + ".tmp")
    try:
        with open(tmp, "wb") as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in _batches(rows):
                    writer.write_batch(_record_batch(pa, batch, schema))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(tmp)
        raise
    os.replace(tmp, os.path.join(dataset.root, ARROW_FILE))
    info = {"citation": "", "description": "", "features": FEATURES, "homepage": "", "license": ""}
    state = {
        "_data_files": [{"filename": ARROW_FILE}],
        "_fingerprint": fingerprint[:16],
        "_format_columns": list(FEATURES),
        "_format_kwargs": {},
        "_format_type": "torch",
        "_output_all_columns": False,
        "_split": None,
    }
    for name, value in ((INFO_FILE, info), (STATE_FILE, state)):
        write_json(os.path.join(dataset.ours, name), value)
        os.replace(os.path.join(dataset.ours, name), os.path.join(dataset.root, name))
    sync_dir(dataset.root)


def _batches(rows: Iterable[Sample]) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    tokens = 0
    for row in rows:
        batch.append(row)
        tokens += row.tokens
        if len(batch) >= _BATCH_ROWS or tokens >= _BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def _record_batch(pa: Any, batch: list[Sample], schema: Any) -> Any:
    ids = pa.array([sample.ids for sample in batch], type=schema.field("input_ids").type)
    mask = pa.array([sample.mask for sample in batch], type=schema.field("loss_mask").type)
    lengths = pa.array([sample.tokens for sample in batch], type=pa.int64())
    return pa.record_batch([ids, mask, lengths], schema=schema)


def rows(dataset: Dataset) -> Iterator[tuple[list[int], list[int], int]]:
    """(input_ids, loss_mask, seq_len) of every Arrow row, in order.

    Raises:
        OSError, ValueError: the file is missing or damaged (pyarrow's errors are both).
    """
    import pyarrow as pa

    # Not memory-mapped: mapped pages would count as this process's memory.
    with pa.OSFile(os.path.join(dataset.root, ARROW_FILE)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield from zip(*(batch.column(name).to_pylist() for name in FEATURES), strict=True)
