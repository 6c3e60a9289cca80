"""What is said of an extraction that needs no restart."""

from __future__ import annotations

from eagle3_console.keyed import avoided, offer
from eagle3_remote.protocol import Phase, PhaseSpan, ServerLog, ServerStatus


def test_the_restart_that_is_avoided_is_as_long_as_the_last_start_was() -> None:
    server = ServerStatus(Phase.READY, "", log=ServerLog(spans=(PhaseSpan(Phase.READY, 552.0),)))
    assert avoided(server).startswith("A restart of 9 m 12 s is avoided")
    assert offer(server)[0] == avoided(server)


def test_where_nobody_knows_how_long_no_time_is_made_up() -> None:
    unclocked = ServerStatus(Phase.READY, "", log=ServerLog(spans=(PhaseSpan(Phase.READY, None),)))
    for server in (None, ServerStatus(Phase.READY, ""), unclocked):
        assert avoided(server).startswith("A restart is avoided")
