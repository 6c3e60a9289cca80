"""What a link does, the same over a real sshd and on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagle3_console.link.base import STDERR_TAIL, Channel, Link
from eagle3_console.link.connect import connect
from eagle3_console.link.errors import ChannelClosed, LinkLost, LinkTimeout
from eagle3_console.link.local import LocalLink
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.target import parse
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox

ODD = [
    "",
    " ",
    "a b",
    "O'Brien",
    '"double"',
    "-rf",
    "--",
    "$HOME `id` $(id)",
    "back\\slash \\' \\\\ \\n",
    "!! !x hi!",
    "two\nlines\n",
    "tab\there",
    "é ü 漢字 🦅",
    "*?[a-z]{x,y}",
    "~root",
    "a;b&c|d<e>f#g",
    "%s %b %%",
    "\x01\x1b[31m\x7f",
    "x" * 3000,
    "'" * 300,
]


@pytest.fixture(params=["ssh", "local"])
async def link(request: pytest.FixtureRequest) -> AsyncIterator[Link]:
    if request.param == "local":
        async with LocalLink() as local:
            yield local
        return
    box: SshdBox = request.getfixturevalue("box")
    async with await connect(parse(box.address), options_for(box), RefusingPrompter()) as ssh:
        yield ssh


async def test_arguments_arrive_as_they_are(link: Link) -> None:
    done = await link.run("""for word do printf '%s\\0' "$word"; done""", argv=ODD, timeout=20)
    assert done.stdout.split(b"\0")[:-1] == [word.encode() for word in ODD]
    assert (done.exit_status, done.stderr) == (0, b"")


async def test_a_script_arrives_as_it_is(link: Link) -> None:
    script = "cat <<'END'\n" + "\n".join(ODD) + "\nEND\nexit 7"
    done = await link.run(script, timeout=20)
    assert (done.exit_status, done.stdout.decode()) == (7, "\n".join(ODD) + "\n")


async def test_input_of_any_bytes_and_size(link: Link) -> None:
    data = os.urandom(6_000_000)
    done = await link.run('wc -c; printf "%s" "$0"', stdin=data, timeout=60)
    assert done.stdout.split() == [b"6000000", b"sh"]
    done = await link.run("exec cat", stdin=data, timeout=60)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


async def test_input_that_nobody_reads_is_no_error(link: Link) -> None:
    done = await link.run("exit 3", stdin=b"x" * 4_000_000, timeout=30)
    assert done.exit_status == 3


async def test_a_command_that_nobody_waits_for_any_more_is_no_error_of_the_loop(link: Link) -> None:
    """Typing on cancels the question before it; what asyncio complains of then would stand on the screen."""
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    for _ in range(5):
        task = asyncio.create_task(link.run("sleep 60", stdin=b"x" * 100_000, timeout=60))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0.2)
    assert faults == []
    assert (await link.run("echo next", timeout=20)).stdout == b"next\n"


async def test_output_is_bytes(link: Link) -> None:
    done = await link.run(r"printf '\377\376 \342\226'; printf '\200' >&2", timeout=20)
    assert (done.stdout, done.stderr) == (b"\xff\xfe \xe2\x96", b"\x80")
    assert (await link.run("echo still here", timeout=20)).stdout == b"still here\n"


async def test_a_signal_counts_as_in_a_shell(link: Link) -> None:
    assert (await link.run("kill -TERM $$", timeout=20)).exit_status == 143


async def test_a_flood_of_errors_holds_nothing_up(link: Link) -> None:
    done = await link.run("head -c 20000000 /dev/zero >&2; echo out; echo last >&2", timeout=60)
    assert done.stdout == b"out\n"
    assert len(done.stderr) == STDERR_TAIL
    assert done.stderr.endswith(b"last\n")


async def test_too_long_is_said_with_what_became_of_it(link: Link) -> None:
    with pytest.raises(LinkTimeout, match=r"did not end within 2 s\. It (may |was killed)"):
        await link.run("sleep 60", timeout=2)
    assert (await link.run("echo next", timeout=20)).stdout == b"next\n"


async def test_a_detached_job_does_not_hold_up_the_command_that_starts_it(link: Link, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = await link.run(
        'setsid sh -c "sleep 0.3; echo survived" >"$1" 2>&1 </dev/null &', argv=[str(log)], timeout=20
    )
    assert done.exit_status == 0
    await link.close()
    async with asyncio.timeout(20):
        while log.read_text() != "survived\n":  # noqa: ASYNC110 (another process writes it)
            await asyncio.sleep(0.05)


async def test_talking_to_a_program(link: Link) -> None:
    program = "import sys\nfor line in sys.stdin:\n    print(line.strip()[::-1], flush=True)\nprint('end', file=sys.stderr)\nsys.exit(4)"
    channel = await link.open('exec "$1" -c "$2"', argv=(sys.executable, program))
    for word in (b"abc", b"xyz"):
        await channel.write(word + b"\n")
        assert await _line(channel) == word[::-1] + b"\n"
    await channel.close()
    assert await channel.wait() == 4
    assert channel.stderr_tail() == b"end\n"
    with pytest.raises(ChannelClosed, match="closed here"):
        await channel.write(b"more\n")


async def test_closing_a_channel_ends_the_program_by_the_end_of_its_input(link: Link, tmp_path: Path) -> None:
    note = tmp_path / "note"
    program = "import sys, os\nsys.stdin.read()\nopen(sys.argv[1], 'w').write('input ended')"
    channel = await link.open('exec "$1" -c "$2" "$3"', argv=(sys.executable, program, str(note)))
    await channel.close()
    assert await channel.wait() == 0
    assert note.read_text() == "input ended"


async def test_the_end_of_a_program_is_seen(link: Link) -> None:
    channel = await link.open("echo bye; echo reason >&2; exit 5")
    assert await channel.read(100) == b"bye\n"
    assert await channel.read(100) == b""
    assert await channel.wait() == 5
    with pytest.raises(ChannelClosed, match="reason"):
        await _write_until_it_breaks(channel)
    await channel.close()


async def test_small_reads_lose_nothing(link: Link) -> None:
    channel = await link.open("printf 0123456789")
    got = [piece async for piece in _pieces(channel)]
    assert b"".join(got) == b"0123456789"
    assert all(len(piece) <= 3 for piece in got)
    await channel.close()


async def test_closing_twice_and_in_any_order(link: Link) -> None:
    channel = await link.open("cat")
    await link.close()
    await channel.close()
    await channel.close()
    await link.close()
    with pytest.raises(LinkLost, match="closed here"):
        await link.ping()
    with pytest.raises(LinkLost, match="closed here"):
        await link.run("true", timeout=5)


async def test_ping(link: Link) -> None:
    assert 0 <= await link.ping() < 60


async def _write_until_it_breaks(channel: Channel) -> None:
    for _ in range(20):  # a pipe may take the first bytes
        await channel.write(b"x" * 100_000)


async def _line(channel: Channel) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += await channel.read(100)
    return line


async def _pieces(channel: Channel) -> AsyncIterator[bytes]:
    while piece := await channel.read(3):
        yield piece
