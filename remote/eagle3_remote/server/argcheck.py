"""Has the SGLang of a Python judge a launch line before it is run, in a short process of that Python.

The process imports SGLang's argument parser and nothing that serves (4 to 8 s with a warm disk). It is bounded in time, and the
GPUs are hidden from it where SGLang lets itself be imported without any.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.server.flags import Parser

TIMEOUT = 90.0
"""Seconds for one answer; a first import from a cold network disk takes a minute."""
SENTINEL = "EAGLE3-ARGUMENTS "
"""What `eagle3_patch.argcheck` begins its answer with."""
_CODE = "import sys; sys.path.insert(0, {release!r}); from eagle3_patch.argcheck import main; main()"
_DUMPS = (layout.ENV_DUMP_DIR, layout.ENV_DUMP_DIR_OLD)


class NoParser(Exception):
    """The parser cannot be asked; the text says why, without a full stop."""


class ArgumentChecker:
    """Asks parsers, and remembers their answers, but for lines that name a ``--config`` file: it may be changed.

    Args:
        release: the folder that holds ``eagle3_patch``.
    """

    def __init__(self, release: Path) -> None:
        self._release = release
        self._known: dict[tuple[Any, ...], Parser] = {}
        self._lock = threading.Lock()

    def ask(self, python: str, version: str, argv: Sequence[str], env: Mapping[str, str]) -> Parser:
        """What the parser of SGLang `version` in `python` says of SGLang's own arguments `argv`.

        Args:
            env: what the server would get on top of our own environment.

        Raises:
            NoParser: SGLang's parser cannot be imported, or gave no answer in time.
        """
        key = (python, version, tuple(argv), env.get("PYTHONPATH"))
        reads_file = any(word.partition("=")[0] == "--config" for word in argv)
        with self._lock:
            if key in self._known:
                return self._known[key]
        whole = {name: value for name, value in {**os.environ, **env}.items() if name not in _DUMPS}
        answer = self._run(python, argv, {**whole, "CUDA_VISIBLE_DEVICES": ""})
        if "unloadable" in answer:  # some builds cannot be imported where no GPU is seen
            answer = self._run(python, argv, whole)
        if "unloadable" in answer:
            raise NoParser(f"its argument parser cannot be loaded ({answer['unloadable']})")
        parser = Parser.of(answer)
        if not reads_file:
            with self._lock:
                self._known[key] = parser
        return parser

    def _run(self, python: str, argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
        code = _CODE.format(release=str(self._release))
        try:
            process = subprocess.Popen(
                [python, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise NoParser(f"{python} does not start ({error.strerror})") from error
        try:
            out, said = process.communicate(json.dumps(list(argv)).encode(), TIMEOUT)
        except subprocess.TimeoutExpired:
            raise NoParser(f"its argument parser gave no answer in {TIMEOUT:.0f} s") from None
        finally:
            _end(process)
        for line in out.decode("utf-8", "replace").splitlines():
            if line.startswith(SENTINEL):
                answer: dict[str, Any] = json.loads(line.removeprefix(SENTINEL))
                return answer
        last = (said.decode("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
        return {"unloadable": f"exit code {process.returncode}: {last[:300]}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started, where it has not ended by itself (then its number may be somebody else's already)."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its own group, made with it
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
