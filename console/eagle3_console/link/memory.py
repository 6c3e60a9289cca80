"""Asking a person once: a link that is dialled again at 3 a.m. must not wait at a prompt under a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from eagle3_console.link.base import Prompter

A = TypeVar("A", str, list[str])


class RememberingPrompter:
    """Asks `inner` until the first login worked, then answers from memory, and each question once a dial.

    Answers stay in this process's memory and go nowhere else. What was never asked before is declined, so that the error
    says what to do instead of hanging at a prompt that nobody sees.
    """

    def __init__(self, inner: Prompter) -> None:
        self._inner = inner
        self._answers: dict[object, str | list[str]] = {}
        self._spent: set[object] = set()
        self._alone = False

    def begin(self) -> None:
        """A new dial: every remembered answer may be given once more."""
        self._spent.clear()

    def leave(self) -> None:
        """The login worked; from now on nobody is asked."""
        self._alone = True

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        return not self._alone and await self._inner.accept_host_key(host, algorithm, fingerprint)

    async def password(self, prompt: str) -> str | None:
        if self._alone:
            return self._known(("password", prompt), str)
        return self._keep(("password", prompt), await self._inner.password(prompt))

    async def passphrase(self, path: str) -> str | None:
        if self._alone:
            return self._known(("passphrase", path), str)
        return self._keep(("passphrase", path), await self._inner.passphrase(path))

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        key = ("challenge", title, instructions, tuple(prompts))
        if self._alone:
            return self._known(key, list)
        return self._keep(key, await self._inner.challenge(title, instructions, prompts))

    def _keep(self, key: object, answer: A | None) -> A | None:
        if answer is not None:
            self._answers[key] = answer
        return answer

    def _known(self, key: object, kind: type[A]) -> A | None:
        answer = self._answers.get(key)
        if key in self._spent or not isinstance(answer, kind):
            return None  # given and refused already: asking again would only lock the account
        self._spent.add(key)
        return answer
