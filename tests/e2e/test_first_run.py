"""A whole first run by keyboard alone: from the empty set-up to the report, on the embedded box with a real SGLang."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from textual.widgets import Input

from eagle3_console.controller import SessionController
from eagle3_console.demo.testbed import install
from eagle3_console.plan import Plan
from eagle3_console.profiles.store import load
from eagle3_console.ui.app import ConsoleApp
from eagle3_console.ui.setup.fields import PathField
from eagle3_console.ui.setup.report import ReportScreen
from eagle3_console.ui.setup.screen import SetupScreen
from eagle3_remote.protocol import Phase
from tests.e2e.conftest import free_port
from tests.e2e.test_screen import SAMPLES, prepared, session, until
from tests.ui.test_keys import text_of


async def test_a_first_run_by_keyboard(
    tmp_path: Path, bed: install.TestBed, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with prepared(tmp_path, bed, model) as (box, known):
        controller = SessionController(session(box), Plan(on_trouble="pause"))
        app = ConsoleApp(controller, box.address, ascii_signs=False)
        async with app.run_test(size=(120, 40)) as pilot:

            def screen() -> SetupScreen:
                assert isinstance(app.screen, SetupScreen), app.screen
                return app.screen

            def field(name: str) -> str:
                return screen().query_one(f"#input-{name}", Input).value

            def completes(name: str) -> bool:
                return screen().query_one(f"#field-{name}", PathField).completes

            async def go_to(name: str) -> None:
                """With enter, as a person goes through the fields."""
                for _ in range(20):
                    if app.focused is screen().query_one(f"#input-{name}"):
                        return
                    await pilot.press("enter")
                    await pilot.pause(0.05)
                raise AssertionError(f"enter does not lead to {name}\n{text_of(app)}")

            await until(pilot, lambda: isinstance(app.screen, SetupScreen))
            await until(pilot, lambda: bool(screen().made.box))
            await pilot.press(*str(model)[:-2])
            await until(pilot, lambda: completes("model"))
            await pilot.press("tab")
            await until(pilot, lambda: field("model") == f"{model}/")
            await until(pilot, lambda: "weights" in {one.what for one in screen().made.fields.get("model", ())})
            await go_to("data")
            await pilot.press(*known.data[:-4])
            await until(pilot, lambda: completes("data"))
            await pilot.press("tab")
            await until(pilot, lambda: field("data") == known.data)
            await go_to("out")
            await pilot.press(*known.out)
            await until(pilot, lambda: screen().made.ready)
            assert f"{SAMPLES} samples" in " ".join(one.sentence for one in screen().made.forecast)
            await go_to("port")
            await pilot.press(*str(free_port()))
            await go_to("server_args")  # what SGLang needs on a CPU besides what is proposed
            await pilot.press(*shlex.join(bed.server_args))
            await until(pilot, lambda: screen().made.plan.server_args == bed.server_args)
            await until(pilot, lambda: screen().made.ready)
            assert "dataset" not in os.listdir(tmp_path)
            await pilot.press("ctrl+r")
            await until(pilot, lambda: not isinstance(app.screen, SetupScreen))
            await until(pilot, lambda: isinstance(app.screen, ReportScreen), 400)
            assert isinstance(app.screen, ReportScreen)
            assert f"{SAMPLES:,} stored, 0 rejected, 0 failed" in app.screen.text
            assert "every file is as the manifest says" in app.screen.text
            await pilot.press("escape")
            assert [step.status for step in app.state.steps] == ["done"] * len(app.state.steps)
            assert app.state.snapshot is not None
            assert app.state.snapshot.server.phase in (Phase.READY, Phase.BUSY)
        assert len(list((tmp_path / "dataset" / "hidden_states").glob("hs_*.safetensors"))) == SAMPLES
        (profile,) = (tmp_path / "config" / "eagle3-console" / "profiles").glob("*.toml")
        assert load(profile.stem).options["out"] == known.out
