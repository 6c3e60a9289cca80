"""The key that a server asks for (``--api-key``), for our own requests: an ``Authorization`` header, never an argument.

It comes from what was said for this very call, from the secrets of a server job of ours, or from the variable `ENV`. A job's own
goes to that job alone: to the address at which it listens, while its process lives, and never to whoever took its port since.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator

from eagle3_remote.box.home import box_home
from eagle3_remote.job import jobs, secretfile
from eagle3_remote.server.listening import is_at

ENV = "EAGLE3_SERVER_API_KEY"
FLAG = "--api-key"
_said: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("said", default=("", ""))


@contextlib.contextmanager
def using(url: str, key: str) -> Iterator[None]:
    """Send `key` to the server at `url` from here on."""
    token = _said.set((_place(url), key)) if key else None
    try:
        yield
    finally:
        if token is not None:
            _said.reset(token)


def key_for(url: str) -> str:
    """The key for the server at this address; empty: none is known."""
    place, key = _said.get()
    if key and place == _place(url):
        return key
    with contextlib.suppress(OSError):
        for job in jobs.living(box_home(), "server"):
            own = secretfile.read(job.run_dir).args.get(FLAG, "")
            if own and _serves(job, url):
                return own
    return os.environ.get(ENV, "")


def header_for(url: str) -> dict[str, str]:
    """The header that lets us in; empty: none is needed, or no key is known."""
    key = key_for(url)
    return {"Authorization": f"Bearer {key}"} if key else {}


class Authorize(urllib.request.BaseHandler):
    """Adds the header to each request; it does not follow a redirection."""

    def http_request(self, request: urllib.request.Request) -> urllib.request.Request:
        """As urllib calls it."""
        for name, value in header_for(request.full_url).items():
            request.add_unredirected_header(name, value)
        return request


def _serves(job: jobs.Job, url: str) -> bool:
    """Whether the job's process lives and listens at `url`; one that is to be started again does not meanwhile."""
    message, leader = job.spec["message"], job.leader
    at_home = is_at(url, str(message.get("host", "")), int(message.get("port", 0)))
    return at_home and leader is not None and jobs.leader_lives(job, leader)


def _place(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}:{parts.port}"
