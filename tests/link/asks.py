"""A person at the keyboard, for tests: answers what it was told to, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Sequence


class Person:
    """A prompter with its answers ready; an empty list means that nobody answers."""

    def __init__(
        self,
        host_key: bool = False,
        passwords: Sequence[str] = (),
        passphrases: Sequence[str] = (),
        answers: Sequence[list[str]] = (),
    ) -> None:
        self._host_key = host_key
        self._passwords = list(passwords)
        self._passphrases = list(passphrases)
        self._answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        self.asked.append(("host key", host, algorithm, fingerprint))
        return self._host_key

    async def password(self, prompt: str) -> str | None:
        self.asked.append(("password", prompt))
        return self._passwords.pop(0) if self._passwords else None

    async def passphrase(self, path: str) -> str | None:
        self.asked.append(("passphrase", path))
        return self._passphrases.pop(0) if self._passphrases else None

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        self.asked.append(("challenge", title, instructions, *(text for text, _ in prompts)))
        return self._answers.pop(0) if self._answers else None
