"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
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
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started with & by a script; children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _process_stays_as_it_was() -> Iterator[None]:
    """What a test changes in this process and leaves so decides what every later test's children do: an ``EAGLE3_HOME``
    that one test left behind kept later ones from finding their own servers."""
    before = _process()
    yield
    after = _process()
    assert after == before, {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _process() -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    umask = os.umask(0o077)
    os.umask(umask)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    return {"environment": environment, "folder": os.getcwd(), "umask": umask, "handlers": handlers}


@pytest.fixture(scope="session")
def needs() -> Callable[[bool, str], None]:
    """``needs(condition, reason)``: skip with the reason on a person's machine, fail under CI."""

    return require
