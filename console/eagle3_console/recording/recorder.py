"""Records while a session goes on. The file is written by a thread of its own: a slow or full disk holds up nothing."""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from eagle3_console.errors import UsageError
from eagle3_console.events import Alert, AlertRaised, Event
from eagle3_console.recording.writer import Writer

MAX_WAITING = 20_000
"""Events that wait for the disk before the recording is given up."""
_CLOSE_SECONDS = 10.0

Emit = Callable[[Event], None]


class Recorder:
    """Takes every event and writes it. Call it with each; close it at the end.

    Args:
        path: does not exist yet.
        target: what a person typed to get to the box.
        note: what is recorded, where it is not a person's own session.

    Raises:
        UsageError: the file exists already, or cannot be made.
    """

    def __init__(self, path: Path, target: str, note: str = "") -> None:
        self.path = path
        self._fault = ""
        self._told = False
        self._waiting: queue.Queue[tuple[float, Event] | None] = queue.Queue(MAX_WAITING)
        self._began = 0.0
        self._writer: Writer | None = None
        self._target, self._note = target, note
        try:
            # Only for its owner: it shows paths, hosts and the log.
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise UsageError(f"The file {path} exists already: name another one for the recording.") from None
        except OSError as error:
            raise UsageError(f"The recording {path} cannot be made: {error.strerror or error}.") from error
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> AlertRaised | None:
        """Have one event written; once, when that has failed, what to tell the person. Never waits, never raises."""
        if self._writer is None:  # second 0 is the first event
            self._began, self._writer = time.monotonic(), Writer(self._target, time.time(), self._note)
        if not self._fault:
            try:
                self._waiting.put_nowait((time.monotonic() - self._began, event))
            except queue.Full:
                self._fault = "the disk takes too long"
        if not self._fault or self._told:
            return None
        self._told = True
        text = f"the recording {self.path} ends here: {self._fault}. The session goes on."
        cure = "make room, then start the console again with another --record FILE"
        return AlertRaised(Alert(time.time(), "warning", "recording-ended", text, cure))

    def tee(self, emit: Emit) -> Emit:
        """`emit`, and what it gets is recorded too."""

        def both(event: Event) -> None:
            emit(event)
            fault = self.take(event)
            if fault is not None:
                emit(fault)

        return both

    def close(self) -> None:
        """Write what waits, and the end."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=1.0)
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            begun = False
            while (item := self._waiting.get()) is not None and not self._fault:
                assert self._writer is not None
                if not begun:
                    self._write(self._writer.begin())
                    begun = True
                self._write(b"".join(self._writer.take(*item)))
            if self._writer is not None and not self._fault:
                self._write(b"".join(self._writer.end(time.monotonic() - self._began)))
        except Exception as error:  # whatever it is: the session goes on
            self._fault = getattr(error, "strerror", None) or str(error) or type(error).__name__
        finally:
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        """All of `data`: a process that is killed loses nothing that was written."""
        while data:
            data = data[os.write(self._file, data) :]


@contextlib.contextmanager
def recording(args: argparse.Namespace, target: str, note: str = "") -> Iterator[Recorder | None]:
    """The recorder that ``--record`` asks for, closed at the end; `None` without it."""
    path = getattr(args, "record", "")
    if not path:
        yield None
        return
    recorder = Recorder(Path(path).expanduser(), target, note)
    try:
        yield recorder
    finally:
        recorder.close()
