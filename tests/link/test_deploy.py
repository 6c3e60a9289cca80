"""A deploy over a real link that is cut at any byte, killed at any step, or finds a full or read-only disk: the old release
or the new one, never half of one, and the next deploy works. All bytes instead of some: ``EAGLE3_EVERY_BYTE=1``."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from eagle3_console import release, session
from eagle3_console.errors import BoxNotFit, ConsoleError
from eagle3_console.link.base import Completed, Link
from eagle3_console.link.connect import connect
from eagle3_console.link.errors import LinkError, LinkLost
from eagle3_console.link.local import LocalLink
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.target import parse
from eagle3_console.session import Session
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox

Dial = Callable[[], Awaitable[Link]]


def small(**files: bytes) -> tuple[release.Release, dict[str, bytes]]:
    """A release of a few files, one in a folder."""
    content = {"a.py": b"A = 1\n", "package/b.py": b"B = 2\n" * 20, **files}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    payload = buffer.getvalue()
    return release.Release(hashlib.sha256(payload).hexdigest(), payload), content


OLD, OLD_FILES = small(old=b"old")
NEW, NEW_FILES = small(new=b"new")
FRAME = len(NEW.payload) + 8


def cuts() -> list[int]:
    """Bytes of the upload that arrive."""
    if os.environ.get("EAGLE3_EVERY_BYTE"):
        return list(range(FRAME + 1))
    return [0, 1, 7, 8, 9, *range(50, FRAME - 2, 97), FRAME - 2, FRAME - 1, FRAME]


def whole(home: Path) -> set[str]:
    """The releases on the box, each of which is complete to the last byte."""
    found = set()
    for made, files in ((OLD, OLD_FILES), (NEW, NEW_FILES)):
        folder = home / "releases" / made.sha256
        if folder.exists():
            assert (folder / ".complete").read_text() == made.sha256
            there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
            assert there == {".complete", *files}
            assert all((folder / name).read_bytes() == data for name, data in files.items())
            found.add(made.sha256)
    names = {path.name for path in (home / "releases").iterdir() if not path.name.startswith(".tmp-")}
    assert names == found  # nothing else has a name that a console would take for a release
    return found


async def deploy(dial: Dial, home: Path, monkeypatch: pytest.MonkeyPatch, what: release.Release) -> session.Deployment:
    monkeypatch.setattr(release, "build", lambda: what)
    one = Session(dial, "the box", box_home=str(home), python=sys.executable)
    await one.connect()
    try:
        return await one.deploy()
    finally:
        await one.drop()


def with_old(home: Path, like: Path) -> Path:
    """A box on which the old release was deployed."""
    shutil.copytree(like / "releases" / OLD.sha256, home / "releases" / OLD.sha256)
    return home


async def local() -> Link:
    return LocalLink()


class CutUpload:
    """A link that breaks when so many bytes of the upload were sent. The far end sees the end of its input, or dies."""

    def __init__(self, link: Link, at: int, end: Callable[[object], Awaitable[None]]) -> None:
        self._link, self._at, self._end = link, at, end

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)

    async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
        if not stdin:
            return await self._link.run(script, argv=argv, timeout=timeout)
        channel = await self._link.open(script, argv=argv)
        if self._at:
            await channel.write(stdin[: self._at])
        await self._end(channel)
        raise LinkLost("It was cut.")


async def eof(channel: object) -> None:
    await channel.close()  # type: ignore[attr-defined]


async def killed(channel: object) -> None:
    await channel.kill()  # type: ignore[attr-defined]


@pytest.mark.parametrize("end", [eof, killed], ids=["end of input", "killed"])
async def test_the_upload_is_cut_at_any_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[object], Awaitable[None]]
) -> None:
    await deploy(local, tmp_path / "first", monkeypatch, OLD)
    for at in cuts():
        home = with_old(tmp_path / f"home {at}", tmp_path / "first")

        async def cutting(at: int = at) -> Link:
            return CutUpload(LocalLink(), at, end)  # type: ignore[return-value]

        with pytest.raises(LinkLost):
            await deploy(cutting, home, monkeypatch, NEW)
        there = whole(home)
        assert OLD.sha256 in there
        assert at == FRAME or NEW.sha256 not in there
        again = await deploy(local, home, monkeypatch, NEW)
        assert (again.uploaded == 0) == (NEW.sha256 in there)
        assert whole(home) == {OLD.sha256, NEW.sha256}


async def test_the_upload_is_cut_over_a_real_sshd(
    box: SshdBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial() -> Link:
        return await connect(parse(box.address), options_for(box), RefusingPrompter())

    async def drop(_channel: object) -> None:
        box.drop()

    for at in (0, 8, 9, FRAME // 2, FRAME - 1):
        home = tmp_path / f"home {at}"
        await deploy(dial, home, monkeypatch, OLD)

        async def cutting(at: int = at) -> Link:
            return CutUpload(await dial(), at, drop)  # type: ignore[return-value]

        with pytest.raises(LinkLost):
            await deploy(cutting, home, monkeypatch, NEW)
        assert whole(home) == {OLD.sha256}
        await deploy(dial, home, monkeypatch, NEW)
        assert whole(home) == {OLD.sha256, NEW.sha256}


# Counts what the bootstrap does to the file system below HOME, and at number AT dies, or from there on is refused.
_STEPS = """
import os, sys
AT, WHAT, HOME = {at}, {what!r}, {home!r}
seen = 0
WRITES = ("os.mkdir", "os.rename", "os.utime", "os.remove", "os.rmdir", "fsync")
def step(event, args):
    global seen
    writes = event in WRITES or (event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR))
    if not writes or not (event == "fsync" or any(HOME in os.fsdecode(a) for a in args if isinstance(a, (str, bytes)))):
        return
    seen += 1
    if WHAT == "kill" and seen == AT:
        os.kill(os.getpid(), 9)
    full = event in ("os.mkdir", "open", "fsync") or WHAT == "EROFS"
    if WHAT.startswith("E") and seen >= AT and full:
        import errno
        number = getattr(errno, WHAT)
        raise OSError(number, os.strerror(number), HOME)
fsync = os.fsync
def audited(descriptor):
    sys.audit("fsync")
    return fsync(descriptor)
os.fsync = audited
sys.addaudithook(step)
try:
    exec(compile({source!r}, "bootstrap", "exec"))
finally:
    sys.stderr.write("steps " + str(seen) + chr(10))
"""


class Stepped:
    """The real bootstrap with a counter of its steps; remembers how many there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._script = release.script
        self._set = monkeypatch.setattr

    def fail(self, at: int, what: str, home: Path) -> None:
        source = self._script("bootstrap")
        text = _STEPS.format(at=at, what=what, home=str(home), source=source)
        self._set(release, "script", lambda name: text if name == "bootstrap" else self._script(name))

    def heal(self) -> None:
        self._set(release, "script", self._script)


async def steps_of_a_deploy(home: Path, monkeypatch: pytest.MonkeyPatch, stepped: Stepped) -> int:
    """How many steps there are where nothing goes wrong."""
    said: list[bytes] = []

    class Listening(LocalLink):
        async def run(self, script: str, *, argv: Sequence[str] = (), stdin: bytes = b"", timeout: float) -> Completed:
            done = await super().run(script, argv=argv, stdin=stdin, timeout=timeout)
            said.append(done.stderr)
            return done

    async def listening() -> Link:
        return Listening()

    await deploy(local, home, monkeypatch, OLD)
    stepped.fail(1 << 30, "kill", home)
    await deploy(listening, home, monkeypatch, NEW)
    stepped.heal()
    return max(int(text.split()[-1]) for text in said if b"steps" in text)


@pytest.mark.parametrize("what", ["kill", "ENOSPC", "EROFS"])
async def test_every_step_may_be_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    stepped = Stepped(monkeypatch)
    count = await steps_of_a_deploy(tmp_path / "whole", monkeypatch, stepped)
    assert count > 15  # folders, files, their fsyncs, the rename: the counter sees them
    words = {"kill": "exit status 137", "ENOSPC": "No space", "EROFS": "read-only"}
    outcomes = set()
    every = 1 if what == "kill" or os.environ.get("EAGLE3_EVERY_BYTE") else 3
    for at in range(1, count + 1, every):
        home = with_old(tmp_path / f"{what} {at}", tmp_path / "whole")
        stepped.fail(at, what, home)
        try:
            await deploy(local, home, monkeypatch, NEW)
            outcomes.add("done")
        except BoxNotFit as refused:
            outcomes.add(words[what] if words[what] in str(refused) else str(refused))
        stepped.heal()
        there = whole(home)
        assert OLD.sha256 in there
        again = await deploy(local, home, monkeypatch, NEW)
        assert (again.uploaded == 0) == (NEW.sha256 in there)
        assert whole(home) == {OLD.sha256, NEW.sha256}
    assert outcomes - {"done"} == {words[what]}


@pytest.mark.parametrize("over", ["local", "ssh"])
async def test_consoles_that_deploy_at_once_all_work(request: pytest.FixtureRequest, tmp_path: Path, over: str) -> None:
    box: SshdBox | None = request.getfixturevalue("box") if over == "ssh" else None

    async def dial() -> Link:
        if box is None:
            return LocalLink()
        return await connect(parse(box.address), options_for(box), RefusingPrompter())

    home = tmp_path / "home"
    consoles = [Session(dial, "the box", box_home=str(home), python=sys.executable) for _ in range(4)]
    await asyncio.gather(*(one.connect() for one in consoles))
    try:
        hellos = await asyncio.gather(*(one.attach() for one in consoles))
        assert len({hello.pid for hello in hellos}) == 4
        names = [path.name for path in (home / "releases").iterdir()]
        assert names == [release.build().sha256]
        for one in consoles:
            assert await one.call_list("jobs.records", {}, dict) == []
    finally:
        await asyncio.gather(*(one.leave() for one in consoles))


async def test_two_consoles_of_two_releases_both_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, newer = tmp_path / "home", release.build()
    buffer = io.BytesIO(newer.payload)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("eagle3_remote/another.py", "")
    older = release.Release(hashlib.sha256(buffer.getvalue()).hexdigest(), buffer.getvalue())
    one, other = (Session(local, "the box", box_home=str(home), python=sys.executable) for _ in range(2))
    for console, its in ((one, older), (other, newer)):
        monkeypatch.setattr(release, "build", lambda its=its: its)
        await console.connect()
        await console.attach()
    try:
        assert await one.call_list("jobs.records", {}, dict) == await other.call_list("jobs.records", {}, dict) == []
        assert await other.call("releases.clean", {}, list) == []
    finally:
        await one.leave()
        await other.leave()


async def test_a_refused_deploy_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((ConsoleError, LinkError), match="a directory is needed"):
        await deploy(local, tmp_path / "file", monkeypatch, NEW)
