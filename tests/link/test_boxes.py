"""Everything that the console does on attaching, over a real sshd: through every login shell, on boxes that lack things."""

from __future__ import annotations

import asyncio
import base64
import getpass
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.errors import BoxNotFit
from eagle3_console.link.connect import connect
from eagle3_console.link.prompts import RefusingPrompter
from eagle3_console.link.target import parse
from eagle3_console.session import Session
from eagle3_remote import protocol
from eagle3_remote.box import identity
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox, ordinary_user, running_sshd, tool
from tests.link.test_shells import NOISE, RC_FILES

ODD_NAME = "-our 'files' \"é\" 漢字 $HOME ~ a\\b"
LOG = "█ 12%\r\x1b[31m".encode() + b"\xff\xfe\x00 not text\n"


def session_on(box: SshdBox, home: str) -> Session:
    return Session(lambda: connect(parse(box.address), options_for(box), RefusingPrompter()), "the box", box_home=home)


def one_log(home: Path) -> str:
    """A server that ended, with a log of any bytes; gives its name."""
    run_dir = home / "runs" / "server-20261129T000000-abcd"
    run_dir.mkdir(parents=True)
    message = protocol.encode(protocol.ServerSpec("/m", "/py"))
    spec = {"id": run_dir.name, "boot_id": identity.boot_id(), "created_at": time.time(), "message": message}
    (run_dir / "spec.json").write_text(json.dumps(spec))
    (run_dir / "rc").write_text("1\n")
    (run_dir / "out.log").write_bytes(LOG)
    return run_dir.name


async def whole_attach(session: Session, home: Path, job: str) -> protocol.Hello:
    """Doctor, deploy, agent, snapshot and log, several of them at once."""
    await session.connect()
    facts, deployed = await asyncio.gather(
        session.doctor(protocol.DoctorQuery(out=str(home / "out -é"))), session.deploy()
    )
    assert facts.user == (await session.attach()).user
    assert Path(deployed.path).parent == home / "releases"
    read = {"job": job, "inode": 0, "offset": 0, "limit": 1000}
    snapshot, chunk, again = await asyncio.gather(
        session.call("snapshot", {"paths": {"out": str(home)}}, protocol.Snapshot),
        session.call("log.read", read, protocol.LogChunk),
        session.doctor(protocol.DoctorQuery()),
    )
    assert snapshot.server.job is not None
    assert snapshot.server.job.id == job
    assert base64.b64decode(chunk.data) == LOG
    assert again.user == facts.user
    hello = session.hello
    assert hello is not None
    assert hello.home == str(home)
    await session.drop()
    return hello


@pytest.fixture(scope="module", params=sorted(RC_FILES))
def shell_home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SshdBox, Path, int]]:
    """A box of an ordinary user with this login shell, whose login scripts print, and that user's home and number."""
    with (
        ordinary_user(shell=tool(request.param)) as account,
        running_sshd(account.name, tmp_path_factory.mktemp(request.param)) as box,
    ):
        rc = RC_FILES[request.param]
        if rc:
            (account.home / rc).parent.mkdir(parents=True, exist_ok=True)
            (account.home / rc).write_text(NOISE)
        yield box, account.home, account.uid


def _give(path: Path, uid: int) -> None:
    for entry in (path, *path.rglob("*")):
        os.chown(entry, uid, uid)


async def test_attaching_through_every_login_shell(shell_home: tuple[SshdBox, Path, int]) -> None:
    box, folder, uid = shell_home
    home = folder / ODD_NAME
    job = one_log(home)
    _give(home, uid)
    hello = await whole_attach(session_on(box, str(home)), home, job)
    assert hello.user == box.user


@pytest.mark.parametrize("sessions", [2, 10])
async def test_attaching_with_few_sessions(sessions: int, tmp_path: Path) -> None:
    home = tmp_path / "home"
    job = one_log(home)
    with running_sshd(getpass.getuser(), tmp_path / "ssh", f"MaxSessions {sessions}") as box:
        await whole_attach(session_on(box, str(home)), home, job)


async def test_a_home_that_cannot_be_written_is_said_and_another_place_does(tmp_path: Path) -> None:
    with ordinary_user() as account, running_sshd(account.name, tmp_path / "ssh") as box:
        os.chown(account.home, 0, 0)  # theirs to read, not to write
        account.home.chmod(0o755)
        session = session_on(box, "")
        await session.connect()
        facts = await session.doctor(protocol.DoctorQuery())
        assert facts.user == account.name
        with pytest.raises(BoxNotFit, match="may not be written by this user"):
            await session.attach()
        await session.drop()

        place = Path("/var/tmp") / f"eagle3 {account.name}"
        try:
            place.mkdir()
            job = one_log(place)
            _give(place, account.uid)
            await whole_attach(session_on(box, str(place)), place, job)
        finally:
            shutil.rmtree(place, ignore_errors=True)


_BARE = """
set -e
mount -t tmpfs -o noexec,nosuid,size=16m tmpfs /tmp
mount -t tmpfs -o size=64m tmpfs /dev/shm
for name in /usr/bin/setsid /usr/bin/nohup; do [ -e $name ] && mount --bind /dev/null $name; done
exec "$@"
"""


async def test_a_bare_container(tmp_path: Path) -> None:
    """/tmp without execution, 64 MB of /dev/shm, neither setsid nor nohup, a user without root, and no sftp."""
    prefix = [tool("unshare"), "--mount", "--propagation", "private", "/bin/sh", "-c", _BARE, "sh"]
    with ordinary_user() as account:
        home = account.home / ".eagle3-console"
        job = one_log(home)
        _give(home, account.uid)
        # sshd's own files lie in /tmp: they go where they stay in sight
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", "/var/tmp")
            patch.setattr("tempfile.tempdir", None)
            with running_sshd(account.name, Path("/var/tmp") / f"ssh-{account.name}", prefix=prefix) as box:
                session = session_on(box, "")
                await session.connect()
                done = await session.link.run(
                    "setsid true; df -m /dev/shm | tail -n 1; printf x >/tmp/x; /tmp/x", timeout=30
                )
                assert b"64" in done.stdout
                assert done.exit_status == 126
                await session.drop()
                await whole_attach(session, home, job)
        shutil.rmtree(Path("/var/tmp") / f"ssh-{account.name}", ignore_errors=True)
