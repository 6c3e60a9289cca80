"""Questions to a live server whose answers are known: are its rows those of its own model, whatever else is in the batch?

Prompts are cut from real samples: ids that a model gives a meaning (an image, say) would mean something else at random. Needs numpy.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
from collections.abc import Sequence
from typing import Any

from eagle3_patch import layout
from eagle3_remote.extract import checks, collect, space
from eagle3_remote.extract.client import Answer, Client, ServerAway
from eagle3_remote.extract.errors import SampleFailure
from eagle3_remote.extract.plan import Plan
from eagle3_remote.extract.scan import to_float32
from eagle3_remote.extract.statesfile import Header, read_header
from eagle3_remote.extract.weights import Ends, NoWeights, read_ends
from eagle3_remote.protocol import ProbeAnswer

TIMEOUT = 900.0
"""Seconds for an answer: the first batches may compile kernels."""
DUMP_TIMEOUT = 60.0
SMALL, LARGE = 100, 1024
"""Tokens of a prompt that is compared, and of one that fills the batch."""
FUSED = 2048
"""Batches of at most so many tokens go through the fused all-reduce (SGLang 0.5.8 to 0.5.20), which can leave partial sums."""
_NOISE = {"BF16": 0.05, "F16": 0.05, "F32": 1e-3}
"""Relative difference of a row that rounding, and another order of summing, explain."""
_BLOCK = 256
_AGREE = 0.75


@dataclasses.dataclass(frozen=True)
class Question:
    """Which server, and what is expected of it."""

    client: Client
    dump_dir: str
    model: str
    boundaries: tuple[int, ...]
    final: str
    chunk: int
    """-1: off."""
    longest: int
    """Tokens that one prompt may have."""
    shape: space.Shape


@dataclasses.dataclass(frozen=True)
class Dumped:
    """One prompt's rows; `words` are mapped from the file."""

    folder: str
    header: Header
    words: Any
    answer: Answer

    def rows(self, start: int, stop: int) -> Any:
        """float32 ``[stop - start, layers, hidden]``."""
        import numpy

        return to_float32(numpy, self.words[start:stop], self.header.dtype)


def question_of(plan: Plan, client: Client, dump_dir: str) -> Question:
    """What the servers of an extraction are asked."""
    return Question(
        client=client,
        dump_dir=dump_dir,
        model=plan.model.path,
        boundaries=plan.boundaries,
        final=plan.spec.final,
        chunk=plan.server.chunk,
        longest=plan.rules.max_tokens,
        shape=plan.shape,
    )


def material(samples: Sequence[Sequence[int]], tokens: int) -> list[int]:
    """Real ids, sample after sample and again from the first, `tokens` of them."""
    found: list[int] = []
    while len(found) < tokens:
        before = len(found)
        for ids in samples:
            found += list(ids[: tokens - len(found)])
        if len(found) == before:
            return []
    return found


def tokens_needed(chunk: int) -> int:
    """How much material `ask` uses."""
    return max(chunk + 1, 4 * LARGE + 8 * SMALL)


async def ask(question: Question, ids: list[int]) -> list[ProbeAnswer]:
    """Every probe, in turn; what a server cannot be asked says so. `ids`: `material`.

    Raises:
        ServerAway: the server went away meanwhile.
    """
    prober = Prober(question)
    steps = (
        ("next token", prober.next_token),
        ("same prompt twice", prober.twice),
        ("alone and in a batch", prober.in_a_batch),
        ("small and large batch", prober.in_a_large_batch),
        ("lengths around the chunk", prober.around_the_chunk),
    )
    answers = []
    for name, step in steps:
        try:
            answers.append(await step(name, ids))
        except SampleFailure as failure:
            answers.append(ProbeAnswer(name, "failed", f"{failure.kind}: {failure}."))
        finally:
            prober.clean()
    return answers


class Prober:
    """Sends prompts to one server and reads their dumps, which `clean` removes."""

    def __init__(self, question: Question) -> None:
        self._q = question
        self._run = f"{layout.RID_PREFIX}probe-{secrets.token_hex(4)}"
        self._number = 0
        self._folders: list[str] = []

    def clean(self) -> None:
        """Delete the dumps of what was sent."""
        collect.remove_dumps(self._folders)
        self._folders = []

    async def next_token(self, name: str, ids: list[int]) -> ProbeAnswer:
        import numpy

        try:
            ends = read_ends(self._q.model)
        except NoWeights as error:
            return ProbeAnswer(name, "not possible", f"{error}.")
        length = min(32, self._q.longest)
        dumped = [await self.send(ids[at * SMALL : at * SMALL + length - at], new_tokens=1) for at in range(8)]
        last = numpy.concatenate([one.rows(one.header.shape[0] - 1, one.header.shape[0])[:, -1] for one in dumped])
        every = numpy.concatenate([one.rows(0, one.header.shape[0])[:, -1] for one in dumped])
        wrong = wrong_norm(ends, every, self._q.final)
        if wrong:
            return ProbeAnswer(name, "failed", wrong)
        tokens = [one.answer.next_token for one in dumped if one.answer.next_token is not None]
        if ends.head is None or len(tokens) < len(dumped):
            missing = "lm_head is not there as plain floats" if ends.head is None else "the server names no output_ids"
            return ProbeAnswer(
                name, "not possible", f"{missing}; the size of the rows is that of {self._q.final}-norm."
            )
        share = await asyncio.to_thread(ends.agreement, last, tokens, self._q.final)
        said = f"{round(share * len(dumped))} of {len(dumped)} prompts: final state x lm_head gives the server's own greedy token"
        if share >= _AGREE:
            return ProbeAnswer(name, "passed", f"{said}.")
        return ProbeAnswer(
            name, "failed", f"only {said}: the final state is another layer's, or its norm is not {self._q.final}."
        )

    async def twice(self, name: str, ids: list[int]) -> ProbeAnswer:
        prompt = ids[: min(SMALL, self._q.longest)]
        return compared(name, [(await self.send(prompt), await self.send(prompt))])

    async def in_a_batch(self, name: str, ids: list[int]) -> ProbeAnswer:
        return await self._beside(name, ids, [])

    async def in_a_large_batch(self, name: str, ids: list[int]) -> ProbeAnswer:
        length = min(LARGE, self._q.longest)
        if not self._has_space(5 * LARGE):
            return ProbeAnswer(name, "not possible", f"the dump directory {self._q.dump_dir} has too little space.")
        return await self._beside(name, ids, [ids[at * 16 : at * 16 + length] for at in range(-(-FUSED // length) + 1)])

    async def _beside(self, name: str, ids: list[int], others: list[list[int]]) -> ProbeAnswer:
        """Four prompts alone, and then together, with four more and with `others`."""
        length = min(SMALL, self._q.longest)
        prompts = [ids[at * SMALL : at * SMALL + length] for at in range(8)]
        alone = [await self.send(prompt) for prompt in prompts[:4]]
        # The long ones first, so that the short ones wait together behind them and share a batch.
        together = await asyncio.gather(*(self.send(prompt) for prompt in (*others, *prompts)))
        return compared(name, list(zip(alone, together[len(others) : len(others) + 4], strict=True)))

    async def around_the_chunk(self, name: str, ids: list[int]) -> ProbeAnswer:
        chunk = self._q.chunk
        if chunk <= 0 or chunk + 1 > self._q.longest:
            return ProbeAnswer(name, "not possible", "no prompt is long enough to be cut into chunks.")
        if not self._has_space(3 * chunk):
            return ProbeAnswer(name, "not possible", f"the dump directory {self._q.dump_dir} has too little space.")
        whole, *cut = [await self.send(ids[: chunk + more]) for more in (-1, 0, 1)]
        return compared(name, [(whole, one) for one in cut])

    def _has_space(self, tokens: int) -> bool:
        return space.room(self._q.dump_dir).free > 2 * tokens * self._q.shape.token_bytes

    async def send(self, ids: Sequence[int], new_tokens: int = 0) -> Dumped:
        """One prompt and its rows.

        Raises:
            SampleFailure: no whole dump of these very ids came.
            ServerAway: the server went away.
        """
        self._number += 1
        rid = f"{self._run}-{self._number}"
        folder = os.path.join(self._q.dump_dir, layout.folder_name(rid))
        self._folders.append(folder)
        answer = await self._q.client.prefill(rid, ids, TIMEOUT, new_tokens)
        await collect.wait_for_dump(folder, DUMP_TIMEOUT, self._alive)
        if answer.cached_tokens:
            raise SampleFailure("cached-tokens", f"{answer.cached_tokens} tokens came from the prefix cache")
        return await asyncio.to_thread(_open, folder, ids, answer, self._q)

    async def _alive(self) -> None:
        if not await self._q.client.healthy():
            raise ServerAway("it does not answer any more")


def _open(folder: str, ids: Sequence[int], answer: Answer, question: Question) -> Dumped:
    import numpy

    path = os.path.join(folder, layout.STATES_FILE)
    try:
        with open(os.path.join(folder, layout.META_FILE), encoding="utf-8") as file:
            checks.check_layers(json.load(file), question.boundaries, question.final)
        header = read_header(path)
        data = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise checks.unreadable(folder, error) from None
    if header.shape[0] != len(ids) or not numpy.array_equal(data[slice(*header.ids)].view("<i8"), ids):
        raise SampleFailure(
            "rows", f"{len(ids)} tokens were sent, {header.shape[0]} rows were dumped, or of other tokens"
        )
    if header.shape[1] != len(question.boundaries) + 1:
        raise SampleFailure("layers", f"the dump has {header.shape[1]} layers, not {len(question.boundaries) + 1}")
    word = "<u4" if header.dtype == "F32" else "<u2"
    return Dumped(folder, header, data[slice(*header.hidden)].view(word).reshape(header.shape), answer)


def wrong_norm(ends: Ends, final: Any, state: str) -> str | None:
    """Why final states, float32 ``[rows, hidden]``, are not what they are declared to be; `None`: they may be."""
    normalised = ends.looks_normalised(final)
    if normalised == (state == "post"):
        return None
    is_now = "after" if normalised else "before"
    return f"the final states are declared {state}-norm, but by their size they are those {is_now} the final norm."


def difference(one: Any, other: Any) -> Any:
    """Relative difference of each row and layer: float32 ``[rows, layers]`` of two ``[rows, layers, hidden]``."""
    import numpy

    size = numpy.maximum(numpy.linalg.norm(one, axis=-1), 1e-30)
    return numpy.linalg.norm(one - other, axis=-1) / size


def unlike(found: Any, dtype: str) -> bool:
    """Whether differences ``[rows, layers]`` are more than rounding: in most rows, or large in some (a flipped expert is in few)."""
    import numpy

    return bool(numpy.median(found, axis=0).max() > _NOISE[dtype] or (found > 0.5).mean() > 0.02)


def compared(name: str, pairs: Sequence[tuple[Dumped, Dumped]]) -> ProbeAnswer:
    """Whether each pair holds the same rows, but for rounding, as far as the first goes."""
    import numpy

    worst = 0.0
    for one, other in pairs:
        found = numpy.concatenate(
            [
                difference(one.rows(at, at + _BLOCK), other.rows(at, min(at + _BLOCK, one.header.shape[0])))
                for at in range(0, one.header.shape[0], _BLOCK)
            ]
        )
        middle = numpy.median(found, axis=0)
        worst = max(worst, float(middle.max()))
        if unlike(found, one.header.dtype):
            layer = int(middle.argmax())
            text = f"the same tokens gave other rows: they differ by {middle[layer]:.2g} of their size at layer {layer} (median row)."
            return ProbeAnswer(name, "failed", text)
    return ProbeAnswer(name, "passed", f"the rows are the same but for rounding ({worst:.1g}).")
