"""From dump to stored file: killed anywhere, a sample is either stored whole or its dump is still there."""

from __future__ import annotations

import array
import asyncio
import errno
import json
import os
import tempfile
import threading
import types
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from eagle3_patch import layout
from eagle3_remote.extract import collect
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract.errors import SampleFailure
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.late import LateDumps
from eagle3_remote.extract.policy import Tuning
from eagle3_remote.extract.progress import Reporter
from eagle3_remote.extract.records import SENT
from eagle3_remote.extract.statesfile import file_crc
from eagle3_remote.extract.storing import Dump, Storer
from eagle3_remote.protocol import ExtractSpec
from tests.extract.kill_at import killed_at
from tests.extract.made import HIDDEN, LAYERS, journal_of, plan_of, states_bytes, stored_ids, write_data, write_dump

IDS = [[1, 2, 3], [4, 5], [6] * 7]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where fsync costs nothing, for there are many."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


@pytest.fixture(params=["another file system", "the same file system"])
def dumps(request: pytest.FixtureRequest, tmp_path: Path, memory: Path) -> Path:
    if request.param == "the same file system":
        return memory / "dumps"
    assert tmp_path.stat().st_dev != memory.stat().st_dev
    return tmp_path / "dumps"


def folder(dumps: Path, line: int) -> Path:
    return dumps / layout.folder_name(f"{layout.RID_PREFIX}r-{line}")


def store_waiting(dataset: ds.Dataset, dumps: Path) -> None:
    """What a run does with complete dumps: stage all, commit."""

    async def run() -> None:
        journal = Journal(dataset.journal)
        reporter = Reporter(dataset.ours, ExtractSpec(data="", out=""))
        storer = Storer(plan_of(dataset, dumps), journal, reporter, Tuning(threads=1))
        rename = collect.can_rename(str(dumps), dataset.states)
        for entry in journal.waiting(10):
            journal.set_state(entry.line, SENT)
            await storer.stage(Dump(entry, str(folder(dumps, entry.line)), rename, lambda: None), None)
        await storer.commit()
        storer.shutdown()
        journal.close()

    asyncio.run(run())


def begin(root: Path, dumps: Path) -> ds.Dataset:
    data = Path(f"{root}.jsonl")
    write_data(data, IDS)
    dataset, journal = journal_of(root, data)
    journal.close()
    for line, ids in enumerate(IDS, 1):
        if not folder(dumps, line).exists():
            write_dump(folder(dumps, line), states_bytes(ids))
    return dataset


def test_killed_between_any_two_steps(memory: Path, dumps: Path) -> None:
    at = 1
    while True:
        dataset = begin(memory / f"at{at}", dumps / f"at{at}")
        points = killed_at(at, lambda d=dataset, place=dumps / f"at{at}": store_waiting(d, place))  # type: ignore[misc]
        journal = Journal(dataset.journal)
        ds.settle(dataset, journal, LAYERS, HIDDEN)
        journal.requeue()
        for entry in journal.waiting(10):
            dump = folder(dumps / f"at{at}", entry.line)
            assert (dump / layout.STATES_FILE).read_bytes() == states_bytes(IDS[entry.row])
            assert not (Path(dataset.states) / collect.file_name(entry.row)).exists()
        journal.close()
        store_waiting(dataset, dumps / f"at{at}")
        is_stored(dataset)
        if points is not None:
            assert at == points + 1 > 20
            return
        at += 1


def is_stored(dataset: ds.Dataset) -> None:
    journal = Journal(dataset.journal)
    assert [entry.row for entry in journal.stored()] == [0, 1, 2]
    for entry in journal.stored():
        path = Path(dataset.states) / collect.file_name(entry.row)
        assert path.read_bytes() == states_bytes(IDS[entry.row])
        assert (entry.bytes, entry.crc32) == (path.stat().st_size, file_crc(str(path)))
        assert stored_ids(dataset, path.name) == IDS[entry.row]
    assert sorted(path.name for path in Path(dataset.states).iterdir()) == [f"hs_{row}.safetensors" for row in range(3)]
    journal.close()


def test_only_dumps_of_named_runs_are_swept(tmp_path: Path) -> None:
    names = ["req_e3-aa-0-1", "req_e3-aa-1-1", "req_e3-aab-0-1", "req_e3-probe", "req_other", ".tmp-e3-aa", "marker"]
    for name in names:
        (tmp_path / name).mkdir()
    assert collect.sweep(str(tmp_path), ["aa"], {"e3-aa-1-1"}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
    assert collect.sweep(str(tmp_path), [], set()) == 0
    assert collect.sweep(str(tmp_path / "gone"), ["aa"], set()) == 0


async def not_asked() -> None:
    raise AssertionError("the mark is there at once")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("[Errno 28] No space left on device", "dump-full"),
        ("900 bytes of dumps lie there (EAGLE3_DUMP_BUDGET) and are not taken away", "dump-full"),
        ("no memory for 77 more bytes of rows within 9 (EAGLE3_PINNED_BUDGET)", "dump-full"),
        ("the first rows are missing (prefix cache hit; start the server with --disable-radix-cache)", "cached-tokens"),
        ("the rows belong to other token ids than the request's", "dump-error"),
    ],
)
def test_an_error_mark_ends_the_wait(reason: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / layout.ERROR_FILE).write_text(json.dumps({"rid": "x", "reason": reason}))
    with pytest.raises(collect.SampleFailure) as caught:
        asyncio.run(collect.wait_for_dump(str(tmp_path), 5, not_asked))
    assert caught.value.kind == kind


def test_fingerprint_is_of_little_endian_int64() -> None:
    import hashlib

    from eagle3_remote.extract.input import fingerprint

    wanted = hashlib.blake2b(bytes([1, 0, 0, 0, 0, 0, 0, 0]), digest_size=16).digest()
    assert fingerprint(array.array("q", [1])) == wanted


def staged(memory: Path, work: Callable[[Storer, Journal], Coroutine[None, None, None]]) -> ds.Dataset:
    """Stages every dump, and leaves the rest to `work`."""
    dataset = begin(memory / "out", memory / "dumps")

    async def run() -> None:
        journal = Journal(dataset.journal)
        storer = Storer(
            plan_of(dataset, memory / "dumps"),
            journal,
            Reporter(dataset.ours, ExtractSpec(data="", out="")),
            Tuning(threads=1, poll=0.01),
        )
        for entry in journal.waiting(10):
            journal.set_state(entry.line, SENT)
            await storer.stage(Dump(entry, str(folder(memory / "dumps", entry.line)), False, lambda: None), None)
        try:
            await work(storer, journal)
        finally:
            storer.shutdown()
            journal.close()

    asyncio.run(run())
    return dataset


def test_who_commits_waits_for_the_batch_on_its_way_and_learns_what_failed(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end nothing is staged any more, and the last fsync has yet to say that there is no space."""
    begun, go_on = threading.Event(), threading.Event()

    def sync(path: str) -> None:
        begun.set()
        assert go_on.wait(30)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(collect, "sync_file", sync)

    async def work(storer: Storer, journal: Journal) -> None:
        first = asyncio.create_task(storer.commit())
        await asyncio.to_thread(begun.wait, 30)
        last = asyncio.create_task(storer.commit())
        await asyncio.sleep(0.05)
        ended_early = last.done()
        go_on.set()
        await last
        assert not ended_early
        assert [entry.line for entry in journal.waiting(10)] == [1, 2, 3]
        await first

    staged(memory, work)


def test_a_name_that_needs_space_is_waited_for(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a directory that needs another block in the middle of a batch."""
    named: list[int] = []
    real = collect.name

    def name(one: collect.Staged, states_dir: str) -> None:
        named.append(one.row)
        if len(named) == 2:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        real(one, states_dir)

    monkeypatch.setattr(collect, "name", name)

    async def work(storer: Storer, journal: Journal) -> None:
        await storer.commit()

    is_stored(staged(memory, work))
    assert len(named) == 4


def test_the_dump_of_a_request_that_begins_during_a_sweep_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep's thread comes to its listing late; by then a request was sent and its dump is there."""
    lane = types.SimpleNamespace(dump_dir=str(tmp_path), in_flight=set(), late=set(), there=True)
    rid = f"{layout.RID_PREFIX}aa-5-1"
    real = os.listdir

    def listdir(path: str) -> list[str]:
        lane.in_flight.add(rid)
        (tmp_path / layout.folder_name(rid)).mkdir()
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    asyncio.run(LateDumps([lane], ["aa"]).remove())  # type: ignore[list-item]
    assert (tmp_path / layout.folder_name(rid)).exists()


def test_a_dump_in_the_other_layout_is_called_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "req_e3-r-1"
    write_dump(folder, states_bytes([1, 2]))
    (folder / layout.STATES_FILE).rename(folder / "aux_0.pt")
    with pytest.raises(
        SampleFailure, match=r"it is in the layout 'pt', .* start the server without EAGLE3_DUMP_LAYOUT"
    ):
        collect.stage(str(folder), str(tmp_path), 0, None)
