"""Secrets are taken out before anything is written: by the one rule of names (`eagle3_remote.protocol`), and what
looks like a key wherever it stands.

Every secret is replaced by as many stars as it had bytes, so that places in a log stay what they were.
"""

from __future__ import annotations

import re
from typing import Any

from eagle3_remote import protocol

_LOOKS_LIKE_A_KEY = re.compile(
    r"""\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}
    |AKIA[A-Z0-9]{16}|glpat-[\w-]{16,})|(?<=\bBearer\ )\S+
    |(?<=://hooks\.slack\.com/)[^\s"']+|(?<=/api/webhooks/)[^\s"']+""",
    re.VERBOSE,
)
_FLAG = re.compile(r"""(?P<flag>--[A-Za-z][\w-]*)(?P<gap>=|\s+(?!-))(?P<value>[^\s"',;]+)""")
"""An option and its value in a command line that stands in a text."""


def text(value: str) -> str:
    """A text without secrets, as long as before in UTF-8."""
    value = _FLAG.sub(_flag, protocol.hide_assigned(value, _stars))
    return _LOOKS_LIKE_A_KEY.sub(lambda found: _stars(found[0]), value)


def tree(value: Any) -> Any:
    """A JSON value without secrets: variables with secret names, words behind secret options, and secrets inside texts."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {
            key: _stars(part) if isinstance(part, str) and protocol.is_secret(key, part) else tree(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        hide = [False, *(isinstance(part, str) and protocol.is_secret_flag(part) for part in value)]
        return [
            _stars(part) if hidden and isinstance(part, str) and not part.startswith("--") else tree(part)
            for part, hidden in zip(value, hide, strict=False)
        ]
    return value


def _flag(found: re.Match[str]) -> str:
    if not protocol.is_secret_flag(found["flag"]):
        return found[0]
    return found["flag"] + found["gap"] + _stars(found["value"])


def _stars(hidden: str) -> str:
    return "*" * len(hidden.encode("utf-8", "surrogateescape"))
