"""An HTTP server in a thread for the tests' stand-ins: it says nothing, and a client that went away is no fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """Subclasses say what is answered."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, ValueError, OSError):
            return

    def finish(self) -> None:
        try:
            super().finish()
        except (ConnectionError, ValueError, OSError):
            return

    def body(self) -> bytes:
        """What was posted."""
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, status: int, body: bytes) -> None:
        """One whole answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        """No answer: the connection just ends."""
        self.close_connection = True
        self.connection.close()


def listening(handler: type[QuietHandler]) -> ThreadingHTTPServer:
    """A server at a free port; `serving` makes it answer."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    return server


@contextmanager
def serving(http: ThreadingHTTPServer, release: threading.Event) -> Iterator[None]:
    """Answer until the block ends; `release` is set then, for handlers that wait."""
    thread = threading.Thread(target=http.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        release.set()
        http.shutdown()
        thread.join()
        http.server_close()
