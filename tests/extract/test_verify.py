"""What a check of a dataset adds up to, in flat memory: the same findings as from all of it at once."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3_console.report import verify_markdown
from eagle3_remote.extract import verified
from eagle3_remote.extract.findings import SHOWN, Problems, Rows, Sizes
from eagle3_remote.extract.scan import logs, middle
from eagle3_remote.job import jobs as box_jobs
from eagle3_remote.protocol import Problem, VerifyReport
from eagle3_remote.steering import Console
from tests.box.client import agent, make_release, until
from tests.box.test_steering import greet
from tests.extract import jobs
from tests.extract.made import states_bytes, write_data
from tests.extract.standin import standin


def odd_at_once(files: list[tuple[int, list[float]]]) -> list[tuple[str, int]]:
    """(file, layer) of what is far from the exact medians of all files."""
    known = [middle(layer) for layer in zip(*(logs(norms) for _, norms in files), strict=True)]
    return [
        (f"hs_{row}.safetensors", layer)
        for row, norms in files
        for layer, size in enumerate(logs(norms))
        if abs(size - known[layer][0]) > known[layer][1]
    ]


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.5])
def test_sizes_far_from_the_others_are_found(spread: float) -> None:
    draw = random.Random(1)
    files = [
        (row, [2 ** draw.gauss(layer, spread) * (64 if row % 97 == layer else 1) for layer in range(3)])
        for row in range(1000)
    ]
    sizes = Sizes()
    for row, norms in files:
        sizes.add(row, norms)
    sizes.add(7, [])
    found = [(one.where, int(one.reason.split()[1])) for one in sizes.odd()]
    sizes.close()
    assert found == odd_at_once(files)
    assert bool(found) == (spread < 1)


def test_problems_are_all_counted_and_the_first_ones_told() -> None:
    problems = Problems()
    problems.add([Problem("manifest.json", "manifest", "")])
    names = [f"{number:04}" for number in range(1000)]
    random.Random(1).shuffle(names)
    problems.add_names(names, "stray", "")
    assert problems.count == 1001
    assert [one.where for one in problems.first] == ["manifest.json", *sorted(names)[: SHOWN - 1]]


def test_rows_are_those_that_were_added() -> None:
    rows = Rows()
    for row in (0, 9, 64, 4_000_000):
        rows.add(row)
    assert [row for row in (0, 1, 8, 9, 63, 64, 3_999_999, 4_000_000, 5_000_000) if row in rows] == [
        *(0, 9, 64, 4_000_000)
    ]


def test_a_check_finds_files_unlike_the_others_and_a_journal_that_is_none(tmp_path: Path, python: Path) -> None:
    ids = [[i + 1] * 20 for i in range(40)]
    write_data(tmp_path / "data.jsonl", ids)
    out = tmp_path / "out"
    with standin(tmp_path) as server:
        # a value 256 times the others'; the extraction itself knows too few sizes yet to refuse it
        server.fill = lambda sent, attempt: 0x4380 if sent[0] == 1 else 0x3F80
        spec = server.spec(tmp_path / "data.jsonl", out)
        assert jobs.run(python, jobs.prepare(tmp_path / "run", spec), tuning=jobs.QUICK) == 0
    for number in range(150):
        (out / f"hidden_states/hs_{1000 + number}.safetensors").write_bytes(states_bytes([1]))
    report = jobs.verify(python, out)
    norms = [one.where for one in report.problems if one.kind == "norms"]
    assert norms == ["hs_0.safetensors"] * 4
    assert (report.samples, report.problem_count, len(report.problems)) == (40, 154, SHOWN)
    assert report.problems[4] == Problem("hs_1000.safetensors", "stray", "it belongs to no stored sample")
    (out / ".eagle3/journal.sqlite3").write_text("no database, but as long as one. " * 100)
    for name in ("journal.sqlite3-wal", "journal.sqlite3-shm"):
        (out / ".eagle3" / name).unlink(missing_ok=True)
    report = jobs.verify(python, out)
    assert [(one.where, one.kind) for one in report.problems] == [(str(out), "journal")]
    assert "file is not a database" in report.problems[0].reason
    assert json.loads((out / ".eagle3/manifest.json").read_text())["complete"], "nothing else was touched"


def test_a_check_is_known_until_the_dataset_is_written_again(tmp_path: Path, python: Path) -> None:
    write_data(tmp_path / "data.jsonl", [[i + 1] * 20 for i in range(6)])
    out = tmp_path / "out"
    with standin(tmp_path) as server:

        def extract(name: str, limit: int) -> None:
            spec = server.spec(tmp_path / "data.jsonl", out, limit=limit)
            assert jobs.run(python, jobs.prepare(tmp_path / name, spec), tuning=jobs.QUICK) == 0

        extract("few", 4)
        assert verified.read(str(out)) is None
        assert jobs.verify(python, out).ok
        known = verified.read(str(out))
        assert known is not None
        assert (known.ok, known.samples, known.faults) == (True, 4, 0)
        extract("again", 4)
        assert verified.read(str(out)) == known, "nothing was written: it holds"
        extract("more", 6)
        assert verified.read(str(out)) is None
    (out / "hidden_states/hs_0.safetensors").unlink()
    assert not jobs.verify(python, out).ok
    known = verified.read(str(out))
    assert known is not None
    assert (known.ok, known.faults) == (False, 1)


def _flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _swap(one: Path, other: Path) -> None:
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


DAMAGE: dict[str, tuple[int, Callable[[Path], None]]] = {
    "a flipped bit": (1, lambda states: _flip(states / "hs_1.safetensors")),
    "a broken header": (1, lambda states: _flip(states / "hs_1.safetensors", 9)),
    "two files swapped": (2, lambda states: _swap(states / "hs_1.safetensors", states / "hs_3.safetensors")),
    "a missing file": (1, lambda states: (states / "hs_2.safetensors").unlink()),
    "a cut file": (1, lambda states: os.truncate(states / "hs_2.safetensors", 100)),
    "all of them": (6, lambda states: [_flip(path) for path in states.iterdir()] and None),
}
"""Kind -> how many files, and what is done to a whole dataset of 6."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_a_check_found_damaged_is_made_again(tmp_path: Path, python: Path, kind: str) -> None:
    write_data(tmp_path / "data.jsonl", [[i + 1] * 20 for i in range(6)])
    out, (count, damage) = tmp_path / "out", DAMAGE[kind]
    states = out / "hidden_states"
    with standin(tmp_path) as server:
        spec = server.spec(tmp_path / "data.jsonl", out)
        assert jobs.run(python, jobs.prepare(tmp_path / "first", spec), tuning=jobs.QUICK) == 0
        whole = {path.name: (path.read_bytes(), path.stat().st_ino) for path in states.iterdir()}
        damage(states)
        found = jobs.verify(python, out)
        assert (found.ok, found.to_remake) == (False, count)
        assert "'extract start' command makes the" in verify_markdown(found)
        assert jobs.run(python, jobs.prepare(tmp_path / "second", spec), tuning=jobs.QUICK) == 0
    after = {path.name: (path.read_bytes(), path.stat().st_ino) for path in states.iterdir()}
    assert {name: data for name, (data, _) in after.items()} == {name: data for name, (data, _) in whole.items()}
    assert sum(after[name] == whole[name] for name in whole) >= 6 - count, "what was good was not touched"
    checked = jobs.verify(python, out)
    assert (checked.ok, checked.complete, checked.samples, checked.to_remake) == (True, True, 6, 0)


def test_a_file_that_was_put_right_since_the_check_stays(tmp_path: Path, python: Path) -> None:
    """What a check noted is a hint: the bytes decide, read anew."""
    write_data(tmp_path / "data.jsonl", [[i + 1] * 20 for i in range(3)])
    out = tmp_path / "out"
    path = out / "hidden_states/hs_1.safetensors"
    with standin(tmp_path) as server:
        spec = server.spec(tmp_path / "data.jsonl", out)
        assert jobs.run(python, jobs.prepare(tmp_path / "first", spec), tuning=jobs.QUICK) == 0
        _flip(path)
        assert jobs.verify(python, out).to_remake == 1
        _flip(path)
        sent = len(server.prompts)
        assert jobs.run(python, jobs.prepare(tmp_path / "second", spec), tuning=jobs.QUICK) == 0
        assert len(server.prompts) == sent
    assert jobs.verify(python, out).ok


def test_who_only_watches_leaves_no_trace_of_a_check(tmp_path: Path, python: Path) -> None:
    write_data(tmp_path / "data.jsonl", [[i + 1] * 20 for i in range(6)])
    out, home, release = tmp_path / "out", tmp_path / "home", make_release(tmp_path / "release")
    with standin(tmp_path) as server:
        spec = server.spec(tmp_path / "data.jsonl", out)
        assert jobs.run(python, jobs.prepare(tmp_path / "run", spec), tuning=jobs.QUICK) == 0
    known = {"data": "d", "out": str(out), "python": str(python)}
    job = box_jobs.start(home, release, box_jobs.new_id("extract"), [str(python), "-c", "pass"], {}, known)
    until(lambda: box_jobs.exit_code(job) == 0)
    before = {path.name: path.stat().st_mtime_ns for path in (out / ".eagle3").iterdir()}
    with agent(release, home) as one:
        greet(one, Console("alice@mbp", "a" * 16, readonly=True))
        report = one.ask(VerifyReport, "verify", dataset=str(out), server="", dump_dir="")
        assert (report.ok, report.samples) == (True, 6)
        assert "does not remember this check: who asked only watches (--readonly)" in verify_markdown(report)
        assert {path.name: path.stat().st_mtime_ns for path in (out / ".eagle3").iterdir()} == before
        greet(one, Console("alice@mbp", "a" * 16, readonly=False))
        report = one.ask(VerifyReport, "verify", dataset=str(out), server="", dump_dir="")
        assert (report.not_kept, "does not remember" in verify_markdown(report)) == ("", False)
        assert verified.read(str(out)) is not None
        os.replace(out / ".eagle3/verified.json", out / "kept")
        (out / ".eagle3/verified.json").mkdir()  # as a file system that takes nothing more
        report = one.ask(VerifyReport, "verify", dataset=str(out), server="", dump_dir="")
        assert report.ok
        assert "does not remember this check: " in verify_markdown(report)
        assert "verified.json cannot be written: Is a directory." in verify_markdown(report)
