"""Arrow as ``datasets`` saves it and Parquet, read by the box's own pyarrow: the same dataset as from JSON lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.protocol import ExtractSpec, ExtractState
from tests.extract import jobs
from tests.extract.standin import standin

MAKE = """
import json, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq

work = Path(sys.argv[1])
records = [json.loads(line) for line in (work / "data.jsonl").open()]
longs, small = pa.list_(pa.int64()), pa.large_list(pa.int32())
table = pa.table({
    "input_ids": pa.array([one["input_ids"] for one in records], longs),
    "loss_mask": pa.array([one["loss_mask"] for one in records], longs),
    "seq_len": pa.array([len(one["input_ids"]) for one in records], pa.int64()),
})
other = pa.table({
    "text": pa.array(["not read"] * len(records)),
    "loss_mask": pa.array([[bool(bit) for bit in one["loss_mask"]] for one in records], pa.list_(pa.bool_())),
    "input_ids": pa.array([one["input_ids"] for one in records], small),
    "id": pa.array([one["id"] for one in records]),
})


def stream(path, part, rows):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, part.schema) as writer:
        writer.write_table(part, max_chunksize=rows)


saved = work / "saved"
saved.mkdir()
stream(saved / "data-00000-of-00002.arrow", table.slice(0, 130), 50)
stream(saved / "data-00001-of-00002.arrow", table.slice(130), 1000)
(saved / "state.json").write_text(json.dumps({"_data_files": [
    {"filename": "data-00000-of-00002.arrow"}, {"filename": "data-00001-of-00002.arrow"}]}))
(saved / "dataset_info.json").write_text("{}")
with pa.OSFile(str(work / "one.arrow"), "wb") as file, pa.ipc.new_file(file, other.schema) as writer:
    writer.write_table(other)
pq.write_table(other, work / "one.parquet", row_group_size=70)
(work / "many").mkdir()
for at in range(3):
    pq.write_table(table.slice(at * 100, 100), work / "many" / f"part-{at}.parquet", row_group_size=30)
pq.write_table(pa.table({"input_ids": pa.array([[1, 2], None, [], [3, None], [5000], [4]], longs),
                         "loss_mask": pa.array([[1, 1], [1], [], [1, 1], [1], [0]], longs)}), work / "bad.parquet")
pq.write_table(pa.table({"tokens": pa.array([[1, 2]] * 3)}), work / "other.parquet")
"""
RECORDS: list[dict[str, Any]] = [
    {"input_ids": [i % 990 + 1] * (3 + i % 7), "loss_mask": [1] + [i % 2] * (2 + i % 7), "id": f"n{i}"}
    for i in range(300)
]


@pytest.fixture(scope="module")
def made(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("tables")
    (work / "data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    subprocess.run([str(python), "-c", MAKE, str(work)], check=True, timeout=120)
    return work


ROWS = f"""
import json, sys; sys.path[:0] = {jobs.PATHS!r}
from eagle3_remote.extract import arrow
from eagle3_remote.extract.dataset import Dataset
print(json.dumps(list(arrow.rows(Dataset(sys.argv[1])))))
"""


def rows(python: Path, dataset: Path) -> Any:
    done = subprocess.run([str(python), "-c", ROWS, str(dataset)], check=True, capture_output=True, timeout=60)
    return json.loads(done.stdout)


def test_every_format_gives_the_same_dataset(made: Path, python: Path, tmp_path: Path) -> None:
    names = ("data.jsonl", "saved", "one.arrow", "one.parquet", "many")
    wanted = [[one["input_ids"], one["loss_mask"], len(one["input_ids"])] for one in RECORDS]
    with standin(tmp_path) as server:
        given = {"probe": False, "server_url": server.url, "dump_dir": str(server.dump_dir), "model": str(server.model)}
        run_dirs = [
            jobs.prepare(
                tmp_path / name / "run", ExtractSpec(data=str(made / name), out=str(tmp_path / name / "out"), **given)
            )
            for name in names
        ]
        assert jobs.run(python, *run_dirs, tuning=jobs.QUICK) == 0, (run_dirs[0] / "out.log").read_text()
    for name in names:
        assert rows(python, tmp_path / name / "out") == wanted, name
        assert jobs.verify(python, tmp_path / name / "out").ok


def test_bad_rows_are_named_by_their_number(made: Path, python: Path, tmp_path: Path) -> None:
    with standin(tmp_path) as server:
        given = {"probe": False, "server_url": server.url, "dump_dir": str(server.dump_dir), "model": str(server.model)}
        bad, other = (
            jobs.prepare(
                tmp_path / name / "run", ExtractSpec(data=str(made / name), out=str(tmp_path / name / "out"), **given)
            )
            for name in ("bad.parquet", "other.parquet")
        )
        assert jobs.run(python, bad, tuning=jobs.QUICK) == 7
        assert jobs.run(python, other, tuning=jobs.QUICK) == 5
    assert [(one.where, one.kind) for one in jobs.report(python, bad).problems] == [
        ("row 2", "rejected: type"),
        ("row 3", "rejected: empty"),
        ("row 4", "rejected: type"),
        ("row 5", "rejected: vocab"),
        ("row 6", "rejected: no-loss"),
    ]
    now = jobs.status(other)
    assert now.state is ExtractState.FAILED
    assert (
        'no usable sample: 3 were read, 3 refused, first row 1: there is no input_ids; the keys are ["tokens"]'
        in now.sentence
    )


def test_reading_a_table_goes_on_after_any_row(made: Path, python: Path) -> None:
    code = f"""
import sys; sys.path[:0] = {jobs.PATHS!r}
from eagle3_remote.extract.sources import Position, Progress, find
for name in ("saved", "one.arrow", "one.parquet", "many"):
    source = find(sys.argv[1] + "/" + name)
    whole = list(source.items(Position()))
    assert [row.number for row in whole] == list(range(1, 301)), name
    for done in (0, 1, 49, 50, 69, 70, 129, 130, 131, 299, 300):
        progress = Progress()
        assert list(source.items(Position(done, 0), progress)) == whole[done:], (name, done)
        assert progress.fraction > 0.9, (name, done)
"""
    subprocess.run([str(python), "-c", code, str(made)], check=True, timeout=120)


LOOK = f"""
import json, sys; sys.path[:0] = {jobs.PATHS!r}
from eagle3_remote.extract.datalook import look
from eagle3_remote.protocol import encode
print(json.dumps([encode(look(sys.argv[1] + "/" + name, 10)) for name in sys.argv[2:]]))
"""


def looked(python: Path, folder: Path, *names: str) -> list[dict[str, Any]]:
    done = subprocess.run([str(python), "-c", LOOK, str(folder), *names], check=True, capture_output=True, timeout=60)
    return [*json.loads(done.stdout)]


def test_a_look_at_a_table_counts_or_estimates_its_samples(made: Path, python: Path) -> None:
    tokens, good = sum(len(one["input_ids"]) for one in RECORDS), [sum(one["loss_mask"]) for one in RECORDS]
    assert all(good)
    saved, arrow, parquet, many, bad, other = looked(
        python, made, "saved", "one.arrow", "one.parquet", "many", "bad.parquet", "other.parquet"
    )
    for one, kind, files in ((saved, "arrow", 2), (arrow, "arrow", 1), (parquet, "parquet", 1), (many, "parquet", 3)):
        assert (one["kind"], one["files"], one["unit"], one["error"]) == (kind, files, "row", ""), one
        assert 290 < one["samples"] < 310, one
        assert 0.9 * tokens < one["tokens"] < 1.1 * tokens, one
        assert (one["longest"], one["bad"]) == (9, 0), one
    assert (parquet["exact"], parquet["samples"], parquet["tokens"]) == (True, 300, tokens)
    assert (bad["samples"], bad["bad"], bad["first_bad"]) == (2, 4, "row 2: input_ids is null, not a list of token ids")
    assert bad["highest_id"] == 5000
    assert (other["samples"], other["bad"]) == (0, 3)
