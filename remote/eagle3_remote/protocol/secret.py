"""The one rule by which something is a secret, and how it is hidden. Pure, for both sides.

A secret has a name that says so: a variable (``HF_TOKEN``, ``AWS_SECRET_ACCESS_KEY``) or an argument (``--api-key``); or it is
an address with a password in it. What is hidden reads `HIDDEN`, and a `HIDDEN` that comes back to the box means "as it was".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

HIDDEN = "(left out)"

_WORDS = frozenset(
    ("TOKEN", "KEY", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "AUTH", "CREDENTIAL")
) | frozenset(("CREDENTIALS", "WEBHOOK", "COOKIE", "BEARER"))
_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "ACCESSKEY")
"""Of a word that is written together: ``HFTOKEN``. ``TOKENS`` are counted and ``TOKENIZER`` is a file: no secrets."""
_NOT_VARIABLES = frozenset(("PWD", "OLDPWD", "SSH_AUTH_SOCK"))
"""Paths."""
_ENDS_A_FLAG = re.compile(r"(^|-)(token|secret|password|passwd|passphrase|credentials?|webhook|auth|key(-[a-z])?)$")
_ASSIGNED = re.compile(
    r"""(?P<head>\b(?:[A-Za-z0-9_-]*(?:(?:api|access|secret|private|watermark)[_-]?key(?:[_-][a-z])?|secret|password|passwd
    |passphrase|(?:hf|hub|auth|access|api|bearer|github|wandb|slack)[A-Za-z0-9_-]*[_-]?token|webhook(?:[_-]url)?))
    ["']?(?:[\ \t]*[=:][\ \t]*|[\ \t]+(?=["'])))(?P<value>(?!\(left\ out\)(?![^\s"',;)}\]]))(?:\(left\ out\)[^\s"',;)}\]]+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"',;)}\]]+))""",
    re.IGNORECASE | re.VERBOSE,
)
"""In prose and logs, where ``KeyError: 'x'`` and ``eos_token='</s>'`` are no secrets."""
_OPTION = re.compile(
    r"""(?P<flag>--[A-Za-z][\w-]*)(?P<gap>=|[ \t]+(?!-))(?!\(left out\)(?![^\s"',;]))(?P<value>\(left out\)[^\s"',;]+|[^\s"',;]+)"""
)
"""An argument and its value in a command line that stands in a text."""
_NO_VALUE = re.compile(r"[a-z]{1,4}|cannot|expects|needs|option|requires|should|without")
"""What stands behind an argument in prose: ``use --token to log in``, ``--auth is required``."""
_LOOKS_LIKE_A_KEY = re.compile(
    r"""\b(?:hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}
    |AKIA[A-Z0-9]{16}|glpat-[\w-]{16,})|(?<=\bBearer\ )(?!\(left\ out\)|(?:auth\w*|tokens?)\b)\S+
    |(?<=://hooks\.slack\.com/)(?!\(left\ out\))[^\s"']+|(?<=/api/webhooks/)(?!\(left\ out\))[^\s"']+""",
    re.VERBOSE,
)
"""Wherever it stands."""
_NONE = ("None", "null", "True", "False", "expected", "invalid", "ignored")
"""No values; the last as in ``argument --api-key: expected one argument``."""
_WITH_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable is a secret, by its name or because its value is an address with a password."""
    words = re.split(r"[^A-Z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper())
    named = name not in _NOT_VARIABLES and any(word in _WORDS or word.endswith(_ENDINGS) for word in words)
    return named or _WITH_PASSWORD.search(value) is not None


def is_secret_flag(flag: str) -> bool:
    """Whether an argument's value is a secret: ``--api-key``, but not ``--max-total-tokens`` or ``--ssl-keyfile``."""
    return flag.startswith("--") and _ENDS_A_FLAG.search(flag.lower().replace("_", "-")) is not None


def hide_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables, those that are secrets with `HIDDEN` for a value."""
    return {name: HIDDEN if value and is_secret(name, value) else value for name, value in env.items()}


def hide_argv(words: Iterable[str]) -> tuple[str, ...]:
    """A command line, with `HIDDEN` for every secret value: ``--api-key K``, ``--api-key=K``, ``HF_TOKEN=K``."""
    out: list[str] = []
    hide = False
    for word in words:
        name, equals, value = word.partition("=")
        if hide and not word.startswith("--"):
            out.append(HIDDEN)
        elif equals and (is_secret_flag(name) or (name.isidentifier() and is_secret(name, value))):
            out.append(f"{name}={HIDDEN}")
        else:
            out.append(HIDDEN if _WITH_PASSWORD.search(word) else word)
        hide = not equals and is_secret_flag(word)
    return tuple(out)


def hide_assigned(text: str, instead: Callable[[str], str] = lambda value: HIDDEN) -> str:
    """A text (a log, a settings file) without the values that stand behind secret names: ``api_key='K'``, ``HF_TOKEN = "K"``,
    ``--api-key K``; without passwords in addresses; and without what looks like a key wherever it stands.

    Args:
        instead: what stands for a value; by default `HIDDEN`.
    """

    def hide(found: re.Match[str]) -> str:
        value = found["value"]
        quote = value[0] if value[0] in "\"'" else ""
        bare = value[1:-1] if quote else value
        return found[0] if value in _NONE else f"{found['head']}{quote}{instead(bare)}{quote}"

    def option(found: re.Match[str]) -> str:
        prose = found["gap"] != "=" and _NO_VALUE.fullmatch(found["value"])
        if prose or not is_secret_flag(found["flag"]):
            return found[0]
        return f"{found['flag']}{found['gap']}{instead(found['value'])}"

    text = _ASSIGNED.sub(hide, text)
    text = _WITH_PASSWORD.sub(lambda found: f"://{instead(found[0][3:-1])}@", text)
    text = _OPTION.sub(option, text)
    return _LOOKS_LIKE_A_KEY.sub(lambda found: instead(found[0]), text)


def hide_text(text: str, values: Iterable[str]) -> str:
    """A text without these values, and without passwords in addresses."""
    for value in values:
        if len(value) >= 4:  # a shorter one would blot out half of the text and is no secret
            text = text.replace(value, HIDDEN)
    return _WITH_PASSWORD.sub(f"://{HIDDEN}@", text)
