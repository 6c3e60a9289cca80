"""Several consoles watch a box, one steers: a lease on the box, with a name and a time.

The first console that changes something takes it. It is renewed by the snapshots that its holder asks for, and expires when
those have not come for `EXPIRES` seconds. Consoles of one person at one machine have one name and steer together: each that
changed something holds the lease with the others, and any that looks renews it. Taking over is possible, and always on purpose.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3_remote.box import identity
from eagle3_remote.files import read_json, write_atomic
from eagle3_remote.protocol import Steering
from eagle3_remote.rpc import Refused

EXPIRES = 60.0
"""Seconds without a sign of the holder: longer than a console takes to dial again after its link was lost."""
RENEW_EVERY = 5.0


@dataclasses.dataclass(frozen=True)
class Console:
    """Who is at the other end of an agent."""

    name: str = ""
    """``user@laptop``; empty: a program on the box itself, which asks nobody."""
    id: str = ""
    """Of this one console."""
    readonly: bool = False


@dataclasses.dataclass(frozen=True)
class _Lease:
    name: str
    since: float
    """Unix seconds, for people."""
    seen: float
    """Seconds since boot: a wall clock that jumps neither ends nor prolongs it."""
    holders: dict[str, float]
    """The consoles that changed something, by id, and when each was seen last, as `seen`."""

    def renewed(self, console: str, *, holds: bool) -> _Lease:
        """As it is when this console was seen now; one that `holds` it is missed when it leaves."""
        now = _now()
        holders = {**self.holders, console: now} if holds or console in self.holders else self.holders
        return dataclasses.replace(self, seen=now, holders=holders)

    def without(self, console: str) -> _Lease | None:
        """As it is when this console has left; `None`: nobody holds it any more."""
        left = {one: seen for one, seen in self.holders.items() if one != console and _now() - seen < EXPIRES}
        return dataclasses.replace(self, holders=left) if left else None


class Lease:
    """The lease of one box folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "steer.json"

    def look(self, console: Console) -> Steering | None:
        """Who steers now; renews the lease where it is the console's own, or of another one of its name."""
        lease = self._read()
        if lease is None:
            return None
        ours = lease.name == console.name and not console.readonly
        if ours and _now() - lease.holders.get(console.id, lease.seen) > RENEW_EVERY:
            with contextlib.suppress(OSError), self._locked():
                now = self._read()
                if now is not None and now.name == console.name:
                    self._write(now.renewed(console.id, holds=False))
        return Steering(lease.name, lease.since, mine=lease.name == console.name)

    def claim(self, console: Console, *, take_over: bool = False) -> None:
        """Before something is changed: steer, or be refused.

        Raises:
            Refused: the console only watches, or somebody else steers.
        """
        self.refuse_watchers(console)
        if not console.name:
            return
        with contextlib.suppress(OSError), self._locked():  # a full home: what is asked for will say so itself
            lease = self._read()
            if lease is not None and lease.name != console.name and not take_over:
                raise Refused(
                    f"{lease.name} steers this box: it began {_ago(time.time() - lease.since)} and was seen "
                    f"{_ago(_now() - lease.seen)}; this console only watches. To steer from here take over: T on the "
                    "screen, --take-over on the command line."
                )
            if lease is None or lease.name != console.name:
                lease = _Lease(console.name, time.time(), _now(), {})
            self._write(lease.renewed(console.id, holds=True))

    def refuse_watchers(self, console: Console) -> None:
        """Before something is changed that takes no lease.

        Raises:
            Refused: the console only watches.
        """
        if console.readonly:
            raise Refused("This console was opened with --readonly: it watches and changes nothing on the box.")

    def release(self, console: Console) -> None:
        """The console leaves; others of its name that hold the lease too go on steering."""
        with contextlib.suppress(OSError), self._locked():
            lease = self._read()
            if lease is None or console.id not in lease.holders:
                return
            left = lease.without(console.id)
            if left is None:
                self._path.unlink()
            else:
                self._write(left)

    def _read(self) -> _Lease | None:
        """The lease that is in force."""
        record = read_json(self._path) or {}
        try:
            holders = {str(one): float(seen) for one, seen in record["holders"].items()}
            lease = _Lease(str(record["name"]), float(record["since"]), float(record["seen"]), holders)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        fresh = record.get("boot_id") == identity.boot_id() and 0 <= _now() - lease.seen < EXPIRES
        return lease if fresh else None

    def _write(self, lease: _Lease) -> None:
        write_atomic(self._path, json.dumps({**dataclasses.asdict(lease), "boot_id": identity.boot_id()}).encode())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._home / "steer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _ago(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 90:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 5400 else f"{seconds / 3600:.1f} h ago"
