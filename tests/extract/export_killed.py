"""export_killed.py DATASET WORK FORMAT: exports that die at every step, and what is there before and after going on.

Runs in the box's Python. The source is the first rows of a real dataset. Prints one JSON line: {"points", "files", "wrong": [...]}.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import sys
from pathlib import Path

import numpy  # noqa: F401 - once here, and not in each of the processes that die
import pyarrow as pa
import safetensors.torch  # noqa: F401
import torch

ROWS = 2


def first_rows(dataset: Path, to: Path) -> None:
    """A dataset of the first rows of another."""
    shutil.copytree(dataset, to, ignore=shutil.ignore_patterns("hs_*"))
    for row in range(ROWS):
        shutil.copy(dataset / f"hidden_states/hs_{row}.safetensors", to / "hidden_states")
    journal = sqlite3.connect(to / ".eagle3/journal.sqlite3")
    journal.execute("DELETE FROM samples WHERE row >= ?", (ROWS,))
    journal.commit()
    journal.close()
    (name,) = to.glob("*.arrow")
    with pa.memory_map(str(dataset / name.name)) as source, pa.ipc.open_stream(source) as reader:
        table = reader.read_all().slice(0, ROWS).combine_chunks()
    with name.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def tree(root: Path) -> dict[str, bytes]:
    """Every file with its bytes, but our own hidden folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".eagle3-export" not in path.parts
    }


def main(dataset: str, work: str, form: str) -> None:
    from eagle3_remote.export.run import Export
    from eagle3_remote.job.work import Progress
    from eagle3_remote.protocol import ExportSpec
    from tests.extract.kill_at import killed_at

    source = Path(work, "source")
    first_rows(Path(dataset), source)

    def export(to: Path) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            Export(ExportSpec(str(source), form, str(to)), Progress(Path(work))).run()

    whole = Path(work, "whole")
    assert killed_at(0, lambda: export(whole)) is not None
    want, wrong, at = tree(whole), [], 1
    while True:
        to = Path(work, f"at{at}")
        points = killed_at(at, lambda to=to: export(to))
        if points is not None:
            break
        for name, data in tree(to).items() if to.exists() else ():
            if want.get(name) != data:
                wrong.append(f"killed at {at}: {name} is half")
        assert killed_at(0, lambda to=to: export(to)) is not None
        if tree(to) != want:
            wrong.append(f"killed at {at}: after going on it is not the whole")
        if [path.name for path in (to / ".eagle3-export").iterdir() if path.name.startswith("tmp-")]:
            wrong.append(f"killed at {at}: a half file is left")
        shutil.rmtree(to)
        at += 1
    print(json.dumps({"points": points, "files": len(want), "wrong": wrong}))  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)  # a fork takes no other thread along
    main(*sys.argv[1:])
