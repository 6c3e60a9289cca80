"""Keeps the server's secrets out of its own log. Standard library only.

SGLang logs its arguments when it starts (``server_args=ServerArgs(... api_key='...')``, 0.5.4 to 0.5.23), and the log is read and
handed on. Every record of Python's logging passes here before it is written.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from typing import Any

from eagle3_patch import layout

HIDDEN = "(left out)"
SHORTEST = 4
"""Characters; anything shorter would blot out half of a line."""
ANYWHERE = 8
"""Characters from which on a secret is hidden inside of a word too; a shorter one may be part of an ordinary number."""


_FORMATTER = logging.Formatter()


def install() -> None:
    """Read the file of secrets, where one is named, and watch the log for them."""
    values = read(os.environ.get(layout.ENV_HUSH, ""))
    if values:
        logging.setLogRecordFactory(hushed(logging.getLogRecordFactory(), values))


def read(path: str) -> list[str]:
    """The secrets in the file, as they are and as Python would quote them, the longest first; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            groups = json.load(file)
        plain = {str(value) for group in groups.values() for value in group.values()}
    except (OSError, ValueError, AttributeError):
        return []
    every = plain | {repr(value)[1:-1] for value in plain}
    return sorted((value for value in every if len(value) >= SHORTEST), key=len, reverse=True)


def hushed(factory: Callable[..., logging.LogRecord], values: list[str]) -> Callable[..., logging.LogRecord]:
    """A record factory whose records have none of `values` in their message and traceback."""

    pattern = _pattern(values)

    def hide(text: str) -> str:
        return pattern.sub(HIDDEN, text)

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = factory(*args, **kwargs)
        if record.exc_info and not record.exc_text:
            trace = _FORMATTER.formatException(record.exc_info)
            if hide(trace) != trace:
                record.exc_text = hide(trace)  # every formatter takes it from here
        if record.stack_info:
            record.stack_info = hide(record.stack_info)
        try:
            text = record.getMessage()
        except Exception:  # a message that does not fit its arguments: logging itself will complain
            return record
        hidden = hide(text)
        if hidden != text:
            record.msg, record.args = hidden, None
        return record

    return make


def _pattern(values: list[str]) -> re.Pattern[str]:
    """Finds each value; a short one only as a whole word."""
    return re.compile(
        "|".join(
            re.escape(value) if len(value) >= ANYWHERE else rf"(?<!\w){re.escape(value)}(?!\w)" for value in values
        )
    )
