"""A link that is dialled again asks nobody."""

from __future__ import annotations

from collections.abc import Sequence

from eagle3_console.link.memory import RememberingPrompter


class Typist:
    """Answers with what it was given, and counts."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def accept_host_key(self, host: str, algorithm: str, fingerprint: str) -> bool:
        self.asked += 1
        return True

    async def password(self, prompt: str) -> str | None:
        self.asked += 1
        return self.answers.pop(0)

    async def passphrase(self, path: str) -> str | None:
        return await self.password(path)

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        self.asked += 1
        return [self.answers.pop(0) for _ in prompts]


async def test_the_answer_that_worked_is_given_again() -> None:
    typist = Typist("wrong", "right")
    memory = RememberingPrompter(typist)
    memory.begin()
    assert await memory.password("Password for me: ") == "wrong"
    assert await memory.password("Password for me: ") == "right"
    memory.leave()
    for _ in range(2):
        memory.begin()
        assert await memory.password("Password for me: ") == "right"
        # refused now: another try with the same word would only lock the account
        assert await memory.password("Password for me: ") is None
    assert typist.asked == 2


async def test_every_kind_of_question() -> None:
    typist = Typist("phrase", "code", "pin")
    memory = RememberingPrompter(typist)
    memory.begin()
    questions = [("Code: ", True), ("PIN: ", False)]
    assert await memory.accept_host_key("box", "ssh-ed25519", "SHA256:x")
    assert await memory.passphrase("/key") == "phrase"
    assert await memory.challenge("Login", "", questions) == ["code", "pin"]
    memory.leave()
    memory.begin()
    assert await memory.passphrase("/key") == "phrase"
    assert await memory.challenge("Login", "", questions) == ["code", "pin"]
    # what was never asked before is declined: nobody sees a prompt
    assert await memory.passphrase("/other") is None
    assert await memory.password("Password: ") is None
    assert not await memory.accept_host_key("box", "ssh-ed25519", "SHA256:other")
    assert typist.asked == 3
