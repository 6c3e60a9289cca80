"""Journals, dumps and files of states made by hand, without torch."""

from __future__ import annotations

import array
import json
import struct
from collections.abc import Sequence
from pathlib import Path

from eagle3_patch import layout
from eagle3_remote.extract.dataset import Dataset, prepare
from eagle3_remote.extract.facts import Model, Server
from eagle3_remote.extract.input import Rules, Sample, parse
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.order import Order
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.reading import Feeder
from eagle3_remote.extract.sources import Source, find, lines
from eagle3_remote.extract.space import Shape
from eagle3_remote.extract.statesfile import read_header, read_ids
from eagle3_remote.protocol import ExtractSpec

RULES = Rules(vocab_size=1000, max_tokens=8000, max_tokens_why="its context length")
LAYERS, HIDDEN = 4, 8


def states_bytes(ids: Sequence[int], layers: int = LAYERS, hidden: int = HIDDEN, fill: int = 0x3F80) -> bytes:
    """A safetensors file of bf16 hidden_states [tokens, layers, hidden] (1.0 everywhere) and int64 token_ids [tokens]."""
    values = struct.pack("<H", fill) * (len(ids) * layers * hidden)
    tokens = array.array("q", ids).tobytes()
    header = {
        "hidden_states": {"dtype": "BF16", "shape": [len(ids), layers, hidden], "data_offsets": [0, len(values)]},
        "token_ids": {"dtype": "I64", "shape": [len(ids)], "data_offsets": [len(values), len(values) + len(tokens)]},
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + values + tokens


def write_dump(
    folder: Path, states: bytes, boundaries: Sequence[int] = (2, 4, 5), final: str = "pre", tokens: int = 0
) -> None:
    """A complete dump folder."""
    folder.mkdir(parents=True)
    (folder / layout.STATES_FILE).write_bytes(states)
    meta = {"boundaries": list(boundaries), "final": final, "tokens": tokens, "sglang_version": "stand-in"}
    (folder / layout.META_FILE).write_text(json.dumps(meta))
    (folder / layout.DONE_FILE).touch()


def write_data(path: Path, ids: Sequence[Sequence[int]]) -> None:
    path.write_text("".join(json.dumps({"input_ids": list(one)}) + "\n" for one in ids))


def journal_of(root: Path, data: Path, order: Order | None = None, rules: Rules = RULES) -> tuple[Dataset, Journal]:
    """A dataset whose journal has read `data`."""
    dataset = prepare(str(root))
    Feeder(dataset.journal, dataset.spool, find(str(data)), rules, order or Order()).run()
    return dataset, Journal(dataset.journal)


def plan_of(dataset: Dataset, dumps: Path) -> Plan:
    """A plan without a server."""
    return Plan(
        spec=ExtractSpec(data=dataset.root + ".jsonl", out=dataset.root, dump_dir=str(dumps)),
        model=Model("", "", 8, HIDDEN, 1000, 0, "bfloat16", ""),
        server=Server("", "", 8192, 8192, 0, 256, "auto", False, ""),
        boundaries=(2, 4, 5),
        rules=RULES,
        shape=Shape(LAYERS, HIDDEN, 2),
        dataset=dataset,
        run="r",
        token_budget=1000,
        source=Source(dataset.root + ".jsonl", "jsonl", (dataset.root + ".jsonl",)),
        order=Order(),
    )


def sample(ids: Sequence[int]) -> Sample:
    item = parse(next(lines(_one_line(ids))), RULES)
    assert isinstance(item, Sample)
    return item


def _one_line(ids: Sequence[int]):  # type: ignore[no-untyped-def]
    import io

    return io.BytesIO(json.dumps({"input_ids": list(ids)}).encode())


def stored_ids(dataset: Dataset, name: str) -> list[int]:
    """The token ids in a stored file, its header checked."""
    path = str(Path(dataset.states) / name)
    return list(array.array("q", read_ids(path, read_header(path))))
