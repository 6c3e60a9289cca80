"""What a restart would lose is said before it happens, and it does not happen under an extraction without --yes."""

from __future__ import annotations

import argparse
import dataclasses
from types import SimpleNamespace

import pytest

from eagle3_console import losses
from eagle3_console.commands.server import say_what_is_lost
from eagle3_console.errors import BoxRefused
from eagle3_console.events import Narration
from eagle3_remote.protocol import ExtractState, Phase, PhaseSpan, Snapshot
from tests.ui.scenes import READY, RUNNING, snapshot

SPANS = (PhaseSpan(Phase.SPAWNING, 0.0), PhaseSpan(Phase.READY, 540.0))
SERVER = dataclasses.replace(READY, log=dataclasses.replace(READY.log, spans=SPANS))


def test_the_extraction_is_named_and_the_last_load_timed() -> None:
    waits, loads = losses.of_server(snapshot(SERVER, RUNNING), comes_back=True)
    assert RUNNING.job is not None
    assert f"The extraction ({RUNNING.job.id}) waits for the server; {RUNNING.in_flight} samples in flight" in waits
    assert "are stored and stay stored" in waits
    assert "is loaded anew; the last load took 9 m 00 s" in loads


def test_without_an_extraction_only_the_model_is_lost() -> None:
    (loads,) = losses.of_server(snapshot(SERVER), comes_back=False)
    assert "is unloaded; the last load took 9 m 00 s" in loads
    ended = dataclasses.replace(RUNNING, state=ExtractState.FINISHED)
    assert len(losses.of_server(snapshot(SERVER, ended), comes_back=True)) == 1
    assert losses.of_server(None, comes_back=True) == []


@pytest.mark.parametrize("yes", [True, False])
def test_on_the_command_line_it_is_said_first_and_needs_yes(yes: bool) -> None:
    said: list[str] = []
    flow = SimpleNamespace(emit=lambda event: said.append(event.text if isinstance(event, Narration) else ""))
    args = argparse.Namespace(host="gpu", yes=yes)
    now: Snapshot = snapshot(SERVER, RUNNING)
    if yes:
        say_what_is_lost(flow, now, args)  # type: ignore[arg-type]
        assert said == losses.of_server(now, comes_back=True)
        return
    with pytest.raises(BoxRefused, match=r"Nothing was restarted on gpu: The extraction .* Say --yes"):
        say_what_is_lost(flow, now, args)  # type: ignore[arg-type]
    assert said == []
    say_what_is_lost(flow, snapshot(SERVER), args)  # type: ignore[arg-type]
    assert len(said) == 1  # without an extraction nobody has to confirm
