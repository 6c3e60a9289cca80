"""Alerts posted to a web address. A thread of its own does it: a slow or dead receiver holds up nothing.

The address is a secret: whoever has it can post. It is in no text, log or exception that leaves this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from eagle3_console.events import Alert
from eagle3_console.recording import scrub

TIMEOUT = 10.0
"""Seconds for each of: connect, send, and the answer."""
RETRY_AFTER = 2.0
CLOSE_SECONDS = 5.0
"""How long the end of a session waits for what is still to be posted."""
_MAX_WAITING = 100
FAULT = "webhook-failed"
"""The cause of the alert that posting fails; it is not posted itself."""
_MENDABLE = (408, 425, 429)
"""Answers below 500 after which a second try may succeed."""


def message(host: str, alert: Alert) -> dict[str, str]:
    """The JSON that is posted: ``text`` as Slack, Mattermost and (at ``/slack``) Discord read it, and the parts of it."""
    text, cure, where = scrub.text(alert.text), scrub.text(alert.cure), scrub.text(host)
    whole = f"{where}: {alert.level}: {text}" + (f"\n{cure}" if cure else "")
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # so that nothing in it is a link or a mention
        whole = whole.replace(sign, name)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(alert.at))
    return {"text": whole, "level": alert.level, "host": where, "time": at, "alert": text, "cure": cure}


def post(url: str, body: dict[str, str], timeout: float = TIMEOUT, retry_after: float = RETRY_AFTER) -> str:
    """Post once, and once more where that may help. Why it was not taken, without the address; empty: it was.

    Blocks; raises nothing.
    """
    why, again = _post(url, body, timeout)
    if again:
        time.sleep(retry_after)
        why, _ = _post(url, body, timeout)
    return why


def _post(url: str, body: dict[str, str], timeout: float) -> tuple[str, bool]:
    """Why not, and whether to try again."""
    try:
        import httpx

        for name in ("httpx", "httpcore"):  # they would log the address
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            with httpx.Client(timeout=timeout) as client, client.stream("POST", url, json=body) as answer:
                code = answer.status_code
        except httpx.TimeoutException:
            return f"it did not answer within {timeout:g} s", True
        except httpx.TransportError as error:
            return f"there is no connection to it ({type(error).__name__})", True
    except Exception as error:  # the text of an exception may hold the address
        return f"it cannot be posted to ({type(error).__name__})", False
    if 200 <= code < 300:
        return "", False
    return f"it answered {code}", code >= 500 or code in _MENDABLE


class Webhook:
    """Posts in order, one after the other. Made and called from a running event loop.

    Args:
        url: where to.
        failed: is called on the event loop with the reason when posting begins to fail; not again before it has worked.
        timeout, retry_after: seconds, see `post`.
    """

    def __init__(
        self, url: str, failed: Callable[[str], None], timeout: float = TIMEOUT, retry_after: float = RETRY_AFTER
    ) -> None:
        self._url = url
        self._failed = failed
        self._limits = timeout, retry_after
        self._waiting: queue.Queue[dict[str, str] | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._done = asyncio.Event()

    def put(self, body: dict[str, str]) -> None:
        """Have one message posted; what is too much is dropped. Never waits, never raises."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop,), name="webhook", daemon=True)
            self._thread.start()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(body)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait for what is still to be posted, but not longer than so many seconds."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), seconds)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        failing = False
        with contextlib.suppress(RuntimeError):  # the loop is closed: the session is over
            while (body := self._waiting.get()) is not None:
                why = post(self._url, body, *self._limits)
                if why and not failing:
                    loop.call_soon_threadsafe(self._failed, why)
                failing = bool(why)
            loop.call_soon_threadsafe(self._done.set)


def fault(why: str) -> Alert:
    """What a person is told when posting fails."""
    cure = "'eagle3-console config test-alert' tries the settings; nothing else is held up by it"
    return Alert(time.time(), "warning", FAULT, f"an alert could not be posted to the webhook: {why}", cure)
