"""The screen by its keys, on the embedded box: real SSH, real SGLang."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import Static

from eagle3_console.cli import build_parser
from eagle3_console.commands.context import make_session
from eagle3_console.controller import SessionController
from eagle3_console.demo.box import EmbeddedBox, embedded_box
from eagle3_console.demo.testbed import install
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.widgets.report_dialog import ReportDialog
from eagle3_remote.protocol import ExtractState, Phase
from tests.e2e.conftest import free_port, make

SAMPLES = 300


def session(box: EmbeddedBox) -> Session:
    words = ["open", box.address, "-F", "none", "-i", str(box.identity_file), "--known-hosts", str(box.known_hosts)]
    return make_session(build_parser()[0].parse_args(words))


def screen(box: EmbeddedBox, plan: Plan) -> ConsoleApp:
    return ConsoleApp(SessionController(session(box), plan), box.address, ascii_signs=False)


def shown(app: ConsoleApp, where: str = "#dialog-line") -> str:
    """What the dialog on the screen says; its parts come one after the other."""
    return "\n".join(str(widget.content) for widget in app.screen.query(where).results(Static))


async def until(pilot: Pilot[None], true: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for what a person would wait for; its absence is the failure, not the time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not true():
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        state = app.state
        server = state.snapshot.server if state.snapshot is not None else None
        seen = (
            state.steps,
            state.alerts,
            state.connection,
            server and (server.phase, server.sentence),
            app.screen_stack,
        )
        assert asyncio.get_running_loop().time() < deadline, "\n".join(map(str, seen))
        await pilot.pause(0.1)


async def press(pilot: Pilot[None], key: str) -> None:
    """A key, once what was done before is quite over: its effect is seen earlier, and until then a key is refused with a word."""
    app = pilot.app
    assert isinstance(app, ConsoleApp)
    await until(pilot, lambda: not app._busy)
    await pilot.press(key)
    await pilot.pause(0.5)


@contextlib.asynccontextmanager
async def prepared(tmp_path: Path, bed: install.TestBed, model: Path) -> AsyncIterator[tuple[EmbeddedBox, Plan]]:
    data = tmp_path / "tokenized_data.jsonl"
    make(bed, "make_data.py", data, "--samples", str(SAMPLES))
    plan = Plan(
        model=str(model),
        data=str(data),
        out=str(tmp_path / "dataset"),
        python=str(bed.python),
        port=free_port(),
        server_args=bed.server_args,
    )
    async with embedded_box(tmp_path, bed.env) as box:
        try:
            yield box, plan
        finally:
            cleaner = session(box)
            await cleaner.connect()
            with contextlib.suppress(Exception):
                await SessionController(cleaner, plan).extract_stop()
            with contextlib.suppress(Exception):
                await SessionController(cleaner, plan).server_stop()
            await cleaner.drop()


async def test_the_main_job_by_keys(tmp_path: Path, bed: install.TestBed, model: Path) -> None:
    async with prepared(tmp_path, bed, model) as (box, plan):
        app = screen(box, plan)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.state.snapshot is not None)

            def phase() -> Phase:
                assert app.state.snapshot is not None
                return app.state.snapshot.server.phase

            def extract_state() -> ExtractState | None:
                assert app.state.snapshot is not None
                return app.state.snapshot.extract.state if app.state.snapshot.extract is not None else None

            assert phase() is Phase.NOT_RUNNING
            await pilot.press("s")
            await until(pilot, lambda: "--disable-radix-cache" in shown(app))
            await pilot.press("s")
            await until(pilot, lambda: phase() is Phase.READY)
            assert app.state.snapshot is not None
            assert [marker.writes for marker in app.state.snapshot.server.log.markers] == [True]
            await press(pilot, "t")
            await until(pilot, lambda: next(s for s in app.state.steps if s.name == "probe").status == "done")
            await press(pilot, "e")
            await until(pilot, lambda: extract_state() in (ExtractState.RUNNING, ExtractState.FINISHED))

            await press(pilot, "p")
            await until(pilot, lambda: extract_state() in (ExtractState.PAUSED, ExtractState.FINISHED))
            if extract_state() is ExtractState.PAUSED:
                await press(pilot, "p")

            # another console sees the same run at once, and leaving it stops nothing
            other = screen(box, Plan())
            async with other.run_test(size=(80, 24)) as second:
                await until(second, lambda: other.state.snapshot is not None)
                assert other.state.snapshot is not None
                seen = other.state.snapshot.extract
                assert seen is not None
                assert seen.total == SAMPLES
                await second.press("q")

            await until(pilot, lambda: extract_state() is ExtractState.FINISHED)
            assert app.state.snapshot is not None
            assert app.state.snapshot.extract is not None
            assert app.state.snapshot.extract.stored == SAMPLES
            assert len(list((tmp_path / "dataset" / "hidden_states").glob("hs_*.safetensors"))) == SAMPLES

            await press(pilot, "v")
            await until(pilot, lambda: isinstance(app.screen, ReportDialog))
            await until(pilot, lambda: f"samples {SAMPLES} " in shown(app, "#dialog Static"))
            assert "every file is as the manifest says" in shown(app, "#dialog Static")
            await pilot.press("escape")

            job = app.state.snapshot.server.job
            await press(pilot, "R")
            await pilot.press("R")
            await until(pilot, lambda: phase() is Phase.READY and app.state.snapshot.server.job != job)  # type: ignore[union-attr]
            assert "--disable-radix-cache" in app.state.snapshot.server.argv
            await press(pilot, "x")
            await pilot.press("x")
            await until(pilot, lambda: phase() is Phase.EXITED)
            assert [alert for alert in app.state.alerts if alert.level == "error"] == []


async def test_a_lost_link_is_dialled_again(tmp_path: Path, bed: install.TestBed, model: Path) -> None:
    """The box's SSH server goes away and comes back: the screen keeps the last truth and connects by itself."""
    async with prepared(tmp_path, bed, model) as (box, plan):
        app = screen(box, plan)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: app.state.snapshot is not None)
            since = app.state.connection.since
            box.cut()
            await until(pilot, lambda: app.state.connection.live and app.state.connection.since != since)
            as_of = app.state.as_of
            await until(pilot, lambda: app.state.as_of != as_of)
            assert app.state.snapshot is not None
