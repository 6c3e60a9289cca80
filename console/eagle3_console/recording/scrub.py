"""Secrets are taken out before anything is written: values behind secret names, and what looks like a key by itself.

Every secret is replaced by as many stars as it had bytes, so that places in a log stay what they were.
"""

from __future__ import annotations

import re
from typing import Any

_NAME = r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|(?<![a-z])token(?![a-z])|auth[_-]?token|credential|watermark-key|webhook|cookie)[\w.-]*"
_COUNTS = re.compile(
    r"tokens|token[_-]?(?:id|usage|count|ratio|num|type|budget|per|len|size)|(?:num|new|max|cached|total|eos|bos|pad|unk|tp|per)[_#-]*token",
    re.I,
)
"""Names of the trade: a token there is a piece of text."""
_SECRET_NAME = re.compile(rf"^-*{_NAME}$", re.I)
_ASSIGNED = re.compile(
    rf"""(?P<name>(?<![\w#-])-*{_NAME})(?P<gap>["']?\s*[=:]\s*["']?|["']?,\s*["']|\s+(?=[^\s-]))(?P<value>[^\s"',;&)\]}}]+)""",
    re.I,
)
_NOTHING = re.compile(r"none|null|true|false|-?\d*\.\d+", re.I)
"""No secret is one of these."""
_URL_LOGIN = re.compile(r"(?<=://)([^\s/@:]*:)([^\s/@]+)(?=@)")
_BEARER = re.compile(r"(?<=\bBearer )\S+|(?<=\bBasic )[A-Za-z0-9+/=]{8,}", re.I)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}|glpat-[\w-]{16,})"
)
_HOOK = re.compile(
    r"(https?://(?:hooks\.|[^\s/\"']*/(?:api/)?webhooks?/|discord(?:app)?\.com/api/webhooks/))([^\s\"']+)", re.I
)


def secret_name(name: str) -> bool:
    """Whether what stands behind this name is nobody's business."""
    return bool(_SECRET_NAME.match(name)) and not _COUNTS.search(name)


def text(value: str) -> str:
    """A text without secrets, as long as before in UTF-8."""
    value = _ASSIGNED.sub(_assigned, value)
    value = _URL_LOGIN.sub(lambda found: found[1] + _stars(found[2]), value)
    value = _HOOK.sub(lambda found: found[1] + _stars(found[2]), value)
    value = _BEARER.sub(lambda found: _stars(found[0]), value)
    return _SHAPES.sub(lambda found: _stars(found[0]), value)


def tree(value: Any) -> Any:
    """A JSON value without secrets: values of secret names, words behind secret options, and secrets inside texts."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {
            key: _stars(part) if isinstance(part, str) and secret_name(key) else tree(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        hide = [False, *(isinstance(part, str) and part.startswith("-") and secret_name(part) for part in value)]
        return [
            _stars(part) if hidden and isinstance(part, str) else tree(part)
            for part, hidden in zip(value, hide, strict=False)
        ]
    return value


def _assigned(found: re.Match[str]) -> str:
    if _COUNTS.search(found["name"]) or _NOTHING.fullmatch(found["value"]):
        return found[0]
    if found["gap"].isspace() and not found["name"].startswith("-"):
        return found[0]  # "the token is" is prose; "--token is" is not
    return found["name"] + found["gap"] + _stars(found["value"])


def _stars(secret: str) -> str:
    return "*" * len(secret.encode("utf-8", "surrogateescape"))
