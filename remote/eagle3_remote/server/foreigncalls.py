"""What a console may ask about servers that somebody else started: to see them, and, confirmed by hand, to stop one."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from pathlib import Path

from eagle3_remote.box import doctor, identity
from eagle3_remote.protocol import ForeignServer, StopReport
from eagle3_remote.rpc import Refused
from eagle3_remote.server import attach, foreign

GRACE, TERM, KILL = 30.0, 5.0, 10.0
"""Seconds for the server to end its own children after TERM, for what is left after a TERM of its own, and after KILL."""
_POLL = 0.1


class ForeignCalls:
    """Bound to one box folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._reader = foreign.ForeignReader(home)

    def seen(self) -> tuple[ForeignServer, ...]:
        """What a snapshot shows; at most a few seconds old."""
        return self._reader.read()

    def listing(self) -> tuple[ForeignServer, ...]:
        """A fresh look. What is shown now may be stopped later, and nothing else."""
        found = foreign.look(self._home)
        try:
            foreign.remember(self._home, found)
        except OSError as error:
            raise Refused(f"{self._home} cannot be written: {error.strerror}.") from error
        return found

    def stop(self, pid: int, confirm: str) -> StopReport:
        """End a server that was shown, if it is still that very process and the box's name was typed.

        Raises:
            Refused: not shown, not the same process any more, not confirmed, in use by an extraction, or not ours to stop.
        """
        shown = foreign.remembered(self._home, pid)
        if shown is None:
            raise Refused(
                f"No server with pid {pid} was shown on this box: look first with 'server status HOST --all'."
            )
        server = next((one for one in foreign.look(self._home) if one.pid == pid), None)
        if server is None or not identity.same_process(shown) or server.start_time != shown.start_time:
            raise Refused(
                f"Pid {pid} is not the server any more that was shown (it ended, or the number was given to another "
                "process): look again with 'server status HOST --all'."
            )
        name = socket.gethostname()
        if confirm != name:
            raise Refused(
                f"Nothing was stopped: pid {pid} is a server of user {server.user} with {server.model or 'a model'}. "
                f"To stop it all the same, name this box: --confirm {name}"
            )
        user = attach.busy_with(self._home, server.url)
        if user is not None:
            raise Refused(f"Job {user.id} extracts through pid {pid}: stop the extraction first.")
        return end(shown, server)


def end(leader: identity.Identity, server: ForeignServer) -> StopReport:
    """TERM to the server's first process, which ends its own children; then TERM, then KILL to what is left of them.

    Its children are those that it has when asked and those that they are seen to start until the end; each is signalled
    only while it is still that process.

    Raises:
        Refused: it belongs to another user.
    """
    family = [leader, *descendants(leader)]
    how = "ended by itself after TERM"
    try:
        identity.signal_process(leader, signal.SIGTERM)
    except PermissionError as error:
        raise Refused(
            f"Pid {leader.pid} belongs to user {server.user} and may not be stopped by this one: ask them, or be root."
        ) from error
    if not _gone(family, GRACE):
        how = "ended after TERM to all its processes"
        _signal(family, signal.SIGTERM)
        if not _gone(family, TERM):
            how = "ignored TERM and was killed"
            _signal(family, signal.SIGKILL)
            _gone(family, KILL)
    left = tuple(doctor.describe(one.pid) for one in family if identity.same_process(one))
    name = f"pid {leader.pid}"
    if left:
        return StopReport(name, False, f"The server of {name} did not end: {', '.join(left)} still lives.", left)
    return StopReport(name, True, f"The server of {name} (user {server.user}) {how}; none of its processes is left.")


def descendants(*parents: identity.Identity) -> list[identity.Identity]:
    """Every living process below `parents`, as far as these still are the processes so named."""
    boot = identity.boot_id()
    todo = [one for one in parents if one.boot_id == boot]
    living: dict[int, identity.ProcessStat] = {}
    children: dict[int, list[identity.ProcessStat]] = {}
    for stat in identity.living():
        living[stat.pid] = stat
        children.setdefault(stat.ppid, []).append(stat)
    found: dict[int, identity.Identity] = {}
    while todo:
        parent = todo.pop()
        if parent.pid not in living or living[parent.pid].start_time != parent.start_time:
            continue
        for stat in children.get(parent.pid, ()):
            # A child is never older than its parent.
            if stat.pid not in found and stat.start_time >= parent.start_time:
                found[stat.pid] = identity.Identity(boot, stat.pid, stat.start_time)
                todo.append(found[stat.pid])
    return list(found.values())


def _signal(family: list[identity.Identity], number: signal.Signals) -> None:
    for one in family:
        with contextlib.suppress(PermissionError):  # it is named as left over
            identity.signal_process(one, number)


def _gone(family: list[identity.Identity], seconds: float) -> bool:
    """Whether all are gone in time. Children that they start meanwhile join `family`: whoever ends may leave one behind."""
    deadline = time.monotonic() + seconds
    while any(identity.same_process(one) for one in family):
        family += [one for one in descendants(*family) if one not in family]
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True
