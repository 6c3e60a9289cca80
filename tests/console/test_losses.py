"""What a restart would lose is said before it happens, and it does not happen under an extraction without --yes."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eagle3_console import losses, screen
from eagle3_console.cli import build_parser
from eagle3_console.commands import boxes
from eagle3_console.commands.boxes import Dialled
from eagle3_console.commands.server import say_what_is_lost
from eagle3_console.controller import SessionController
from eagle3_console.errors import BoxRefused
from eagle3_console.events import Narration
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_console.settings import Settings
from eagle3_remote.protocol import ExtractState, Phase, PhaseSpan, Snapshot
from tests.ui.scenes import READY, RUNNING, arrived, snapshot

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


async def of_one_box(patch: pytest.MonkeyPatch, settings: Settings) -> SessionController:
    made: list[SessionController] = []

    async def follow(controller: SessionController, *_: object, **__: object) -> int:
        made.append(controller)
        return 0

    async def connect(_: Session) -> None:
        pass

    patch.setattr(screen, "load", lambda: settings)
    patch.setattr(screen, "follow", follow)  # there is no terminal here; the controller is the screen's as well
    patch.setattr(Session, "connect", connect)
    await screen.open_screen(Session(cast(Any, None), "local"), Plan())
    return made[0]


async def of_several(patch: pytest.MonkeyPatch, settings: Settings) -> SessionController:
    made: list[SessionController] = []

    async def dialled(*_: object) -> list[Dialled]:
        return [Dialled("local", Session(cast(Any, None), "local"), None)]

    async def open_fleet(boxes: list[tuple[str, SessionController, None]], *_: object, **__: object) -> int:
        made.extend(controller for _, controller, _ in boxes)
        return 0

    patch.setattr(boxes, "load", lambda: settings)
    patch.setattr(boxes, "has_terminal", lambda: True)
    patch.setattr(boxes, "dial_all", dialled)
    patch.setattr(screen, "open_fleet", open_fleet)
    await boxes.open_boxes(build_parser()[0].parse_args(["open", "local", "local"]))
    return made[0]


@pytest.mark.parametrize("opened", [of_one_box, of_several])
async def test_the_key_that_starts_again_is_ones_own(
    monkeypatch: pytest.MonkeyPatch, opened: Callable[[pytest.MonkeyPatch, Settings], Awaitable[SessionController]]
) -> None:
    for given, key in (({}, "e"), ({"extract.start": "f5"}, "f5")):
        controller = await opened(monkeypatch, Settings(keys=given))
        controller._take(arrived(SERVER, RUNNING))
        assert f"until it is started again ({key})" in "".join(controller.losses("extract-stop"))


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
