"""JSON-RPC 2.0, one object a line, over two pipes. Every call runs in a thread of its own.

Broken, oversized and unknown requests are answered and never end the loop. A handler that fails with `Refused` or
`ServerFault` gives the person its sentence; anything else is `E_INTERNAL` with the exception's own words.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, BinaryIO

from eagle3_remote.once import is_key
from eagle3_remote.protocol import (
    E_INTERNAL,
    E_METHOD,
    E_PARAMS,
    E_PARSE,
    E_REFUSED,
    E_REQUEST,
    E_SERVER,
    MAX_LINE_BYTES,
)

Handler = Callable[[Mapping[str, Any]], Any]
"""Takes the params object, gives plain JSON values."""
Once = Callable[[str, Callable[[], Any]], Any]
"""Takes a request's key and the call; does it, unless it was done under that key."""

MAX_CALLS = 32
"""Calls in progress at once; more are refused, so that a console gone wild cannot exhaust the box."""


class Refused(Exception):
    """The box will not do it; the text is a full sentence: what, where, why, what to do."""


class ServerFault(Exception):
    """The SGLang server did not do what it should; the text is a full sentence."""


class BadParams(Exception):
    """The params do not fit the method."""


class Connection:
    """Serves one console.

    Args:
        methods: what can be called.
        finish: methods that change the box: one that has begun is brought to its end even when the console is gone.
        once: how requests that have a ``key`` are done; `None`: as those without.
    """

    def __init__(self, methods: Mapping[str, Handler], finish: Collection[str] = (), once: Once | None = None) -> None:
        self._methods = methods
        self._once = once
        self._finish = frozenset(finish)
        self._write_lock = threading.Lock()
        self._calls: dict[threading.Thread, str] = {}
        self._answering: set[threading.Thread] = set()
        self._calls_lock = threading.Lock()
        self._out: BinaryIO | None = None
        self._heard = self._busy_until = time.monotonic()

    def quiet(self) -> float:
        """Seconds since the console was heard or a call was at work. An answer that nobody takes is no work."""
        with self._calls_lock:
            at_work = self._calls.keys() - self._answering
            return 0.0 if at_work else time.monotonic() - max(self._heard, self._busy_until)

    def serve(self, source: BinaryIO, out: BinaryIO, first: Iterable[bytes] = ()) -> None:
        """Answer the lines of `first`, then those of `source` until it ends. Returns when the calls that must finish have finished."""
        self._out = out
        self._send({"jsonrpc": "2.0", "method": "ready"})
        for line in first:
            self._take(line)
        while True:
            line = source.readline(MAX_LINE_BYTES + 1)
            if not line:
                break
            self._heard = time.monotonic()
            if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                _skip_line(source)
                self._error(None, E_REQUEST, f"the line is longer than {MAX_LINE_BYTES} bytes")
            elif line.strip():
                self._take(line)
        with self._calls_lock:
            unfinished = [thread for thread, method in self._calls.items() if method in self._finish]
        for thread in unfinished:
            thread.join()

    def _take(self, line: bytes) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            self._error(None, E_PARSE, f"the line is not JSON: {error}")
            return
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            self._error(None, E_REQUEST, "a request is one JSON object with a method")
            return
        call_id = request.get("id")
        if call_id is not None and (isinstance(call_id, bool) or not isinstance(call_id, (int, str))):
            self._error(None, E_REQUEST, "the id must be a number or a string")
            return
        params = request.get("params", {})
        if not isinstance(params, dict):
            self._error(call_id, E_PARAMS, "params must be an object")
            return
        handler = self._methods.get(request["method"])
        if handler is None:
            self._error(call_id, E_METHOD, f"there is no method {request['method'][:100]!r}")
            return
        key = request.get("key")
        if key is not None and not is_key(key):
            self._error(call_id, E_REQUEST, "the key must be 16 to 64 hex digits")
            return
        if key is not None and self._once is not None:
            handler = _keyed(self._once, key, handler)
        self._spawn(request["method"], handler, params, call_id)

    def _spawn(self, method: str, handler: Handler, params: Mapping[str, Any], call_id: int | str | None) -> None:
        # Daemons: an abandoned read never keeps the agent alive after its console is gone.
        thread = threading.Thread(target=self._call, args=(handler, params, call_id), name=method, daemon=True)
        with self._calls_lock:
            full = len(self._calls) >= MAX_CALLS
            if not full:
                self._calls[thread] = method
        if full:
            self._error(call_id, E_REFUSED, f"{MAX_CALLS} calls are in progress already: wait for one to end.")
        else:
            thread.start()

    def _call(self, handler: Handler, params: Mapping[str, Any], call_id: int | str | None) -> None:
        try:
            try:
                result = handler(params)
            finally:
                with self._calls_lock:
                    self._answering.add(threading.current_thread())
                    self._busy_until = time.monotonic()
        except Refused as error:
            self._error(call_id, E_REFUSED, str(error))
        except ServerFault as error:
            self._error(call_id, E_SERVER, str(error))
        except BadParams as error:
            self._error(call_id, E_PARAMS, str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._error(call_id, E_INTERNAL, f"{type(error).__name__}: {error}")
        else:
            if call_id is not None:
                self._send({"jsonrpc": "2.0", "id": call_id, "result": result})
        finally:
            with self._calls_lock:
                self._calls.pop(threading.current_thread(), None)
                self._answering.discard(threading.current_thread())

    def _error(self, call_id: int | str | None, code: int, message: str) -> None:
        self._send({"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}})

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        except (TypeError, ValueError) as error:
            data = _internal(message.get("id"), f"the answer is not JSON: {error}")
        if len(data) > MAX_LINE_BYTES:
            data = _internal(message.get("id"), f"the answer is longer than {MAX_LINE_BYTES} bytes")
        assert self._out is not None
        with self._write_lock:
            try:
                self._out.write(data)
                self._out.flush()
            except (OSError, ValueError):
                pass  # the console is gone; the end of its input will tell


def _keyed(once: Once, key: str, handler: Handler) -> Handler:
    return lambda params: once(key, lambda: handler(params))


def _internal(call_id: Any, message: str) -> bytes:
    error = {"jsonrpc": "2.0", "id": call_id, "error": {"code": E_INTERNAL, "message": message}}
    return json.dumps(error).encode() + b"\n"


def _skip_line(source: BinaryIO) -> None:
    while True:
        part = source.readline(1 << 16)
        if not part or part.endswith(b"\n"):
            return
