"""The screen's tests see no colour settings of the terminal they run in, and one time zone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A busy machine is no fault of the code under test.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(autouse=True)
def _steady_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name in ("NO_COLOR", "COLORTERM") or (name.startswith("TEXTUAL_") and "SNAPSHOT" not in name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    for name in ("LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
