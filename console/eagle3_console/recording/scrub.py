"""Secrets are taken out before anything is written: by the one rule for texts and names (`eagle3_remote.protocol.secret`).

Every secret is replaced by as many stars as it had bytes, so that places in a log stay what they were.
"""

from __future__ import annotations

from typing import Any

from eagle3_remote import protocol


def text(value: str) -> str:
    """A text without secrets, as long as before in UTF-8."""
    return protocol.hide_assigned(value, _stars)


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


def _stars(hidden: str) -> str:
    return "*" * len(hidden.encode("utf-8", "surrogateescape"))
