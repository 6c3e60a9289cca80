"""The bound on what lies in the dump directory."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from eagle3_patch.room import Room


def lay(room: Room, folder: Path, size: int, patience: float = 0) -> bool:
    taken = room.take(str(folder), size, patience)
    if taken:
        folder.mkdir()
        room.lies(str(folder))
    return taken


def test_without_a_limit_everything_is_let_in(tmp_path: Path) -> None:
    assert all(lay(Room(0), tmp_path / str(n), 10**15) for n in range(3))


def test_what_was_taken_away_makes_room(tmp_path: Path) -> None:
    room = Room(100)
    assert lay(room, tmp_path / "a", 60)
    assert not lay(room, tmp_path / "b", 60)
    (tmp_path / "a").rmdir()
    assert lay(room, tmp_path / "b", 60)


def test_a_writer_waits_until_the_collector_has_been(tmp_path: Path) -> None:
    room = Room(100)
    assert lay(room, tmp_path / "a", 60)
    got: list[bool] = []
    waiting = threading.Thread(target=lambda: got.append(lay(room, tmp_path / "b", 60, patience=60)))
    waiting.start()
    time.sleep(0.1)
    assert not got
    (tmp_path / "a").rmdir()
    waiting.join(30)
    assert got == [True]


def test_what_could_not_be_written_is_not_counted(tmp_path: Path) -> None:
    room = Room(100)
    assert room.take(str(tmp_path / "a"), 60, 0)
    room.give(str(tmp_path / "a"))
    assert lay(room, tmp_path / "b", 60)


def test_what_is_still_being_written_counts(tmp_path: Path) -> None:
    room = Room(100)
    assert room.take(str(tmp_path / "a"), 60, 0)
    assert not room.take(str(tmp_path / "b"), 60, 0)


def test_a_dump_larger_than_the_limit_goes_alone(tmp_path: Path) -> None:
    room = Room(100)
    assert lay(room, tmp_path / "a", 500)
    assert not lay(room, tmp_path / "b", 1)
    (tmp_path / "a").rmdir()
    assert lay(room, tmp_path / "b", 1)


def test_without_a_limit_nothing_is_kept_of_what_lay_there(tmp_path: Path) -> None:
    """A server writes dumps for weeks."""
    room = Room(0)
    assert all(lay(room, tmp_path / str(n), 100) for n in range(10))
    assert room._lying == {}
