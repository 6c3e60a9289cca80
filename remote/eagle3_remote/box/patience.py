"""Calls into file systems that may not answer: a dead network mount holds a thread for ever, and must hold no more than that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
LIMIT = 12
"""Threads that may hang at once; with more, nothing new is tried."""

_hanging = threading.BoundedSemaphore(LIMIT)


class NoAnswer(Exception):
    """It did not answer in time; the text says so."""


class _Call(threading.Thread, Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(daemon=True, name="patience")
        self._call = call
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result.append(self._call())
        except BaseException as error:
            self.error = error
        finally:
            _hanging.release()


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """What `call` gives, or raises; after `seconds` it is left to itself.

    Raises:
        NoAnswer: not in time, or too many calls before it still hang.
    """
    if not _hanging.acquire(blocking=False):
        raise NoAnswer(
            f"{what} is not looked at: {LIMIT} looks before it still wait for a file system that does not answer"
        )
    thread = _Call(call)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise NoAnswer(f"{what} did not answer in {seconds:g} s: a slow or dead file system")
    if thread.error is not None:
        raise thread.error
    return thread.result[0]
