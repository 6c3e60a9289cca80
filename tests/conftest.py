"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.link.sshd import require

ROOT = Path(__file__).resolve().parent.parent
_MEDDLING = (
    "NO_COLOR",
    "COLORTERM",
    "TEXTUAL_THEME",
    "SSH_AUTH_SOCK",
    "EAGLE3_HOME",
    "EAGLE3_DUMP_DIR",
    "SGLANG_HS_DUMP_DIR",
    "PYTHONPATH",
)


@pytest.fixture(autouse=True, scope="session")
def _plain_environment() -> None:
    """What happens to be set where the tests run must not decide what they show."""
    for name in _MEDDLING:
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def needs() -> Callable[[bool, str], None]:
    """``needs(condition, reason)``: skip with the reason on a person's machine, fail under CI."""

    return require
