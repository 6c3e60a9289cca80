"""What is sent next, and when the run waits or ends."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle3_remote.extract import dispatch, space
from eagle3_remote.extract.dataset import prepare
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.policy import Budget
from tests.extract.made import plan_of


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_an_output_that_cannot_be_looked_at_for_a_moment_is_waited_for_and_not_for_ever(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a network disk's hiccup: the look fails."""
    plan = plan_of(prepare(str(tmp_path / "out")), tmp_path)
    lane: Any = SimpleNamespace(
        there=True, alone=False, in_flight=set(), budget=Budget(1000), rename=False, room=lambda size: None
    )
    entry = SimpleNamespace(tokens=3)
    window: Any = SimpleNamespace(next=entry, empty=False, take=lambda: entry)
    dispatcher, real = dispatch.Dispatcher(plan, [lane], window), space.room

    def broken(path: str) -> space.Room:
        raise OSError(code, "it hiccups")

    for _ in range(3):
        monkeypatch.setattr(space, "room", broken)
        for _ in range(3):
            now = dispatcher.next(False)
            assert (now.wait, now.entry) == (True, None)
            assert f"the output {plan.dataset.root} cannot be looked at (it hiccups)" in now.sentence
        monkeypatch.setattr(space, "room", lambda path: dataclasses.replace(real(path), free=1 << 40))
        assert dispatcher.next(False).entry is entry
    monkeypatch.setattr(space, "room", broken)
    assert dispatcher.next(False).wait
    monkeypatch.setattr(dispatch, "_PATIENCE", 0.0)
    with pytest.raises(ExtractionError, match="it hiccups"):
        dispatcher.next(False)
