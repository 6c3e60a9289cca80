"""One release on the box: complete or not there, whatever is killed, cut, damaged or done twice."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import eagle3_remote.box.bootstrap as bootstrap
from tests.box.client import until

SOURCE = Path(str(bootstrap.__file__)).read_text()
FILES = {"eagle3_remote/__init__.py": b"A = 1\n", "eagle3_patch/entry/sitecustomize.py": b"B = 2\n" * 5000}


def zipped(files: dict[str, bytes] = FILES) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


PAYLOAD = zipped()
DIGEST = hashlib.sha256(PAYLOAD).hexdigest()


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(8, "big") + payload


def run(
    home: Path, stdin: bytes = b"", digest: str = DIGEST, source: str = SOURCE
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-c", source, str(home), digest],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode().splitlines()[-1]


def check_complete(home: Path, digest: str = DIGEST) -> None:
    release = home / "releases" / digest
    for name, data in FILES.items():
        assert (release / name).read_bytes() == data
    assert (release / ".complete").read_text() == digest


def leftovers(home: Path) -> list[str]:
    return [path.name for path in (home / "releases").iterdir() if path.name.startswith(".tmp-")]


def test_need_then_done_then_have(tmp_path: Path) -> None:
    home = tmp_path / "a home with 'quotes' é"
    asked = run(home)
    assert (asked.returncode, last_line(asked)) == (10, f"need {home}/releases/{DIGEST}")
    put = run(home, frame(PAYLOAD))
    assert (put.returncode, last_line(put)) == (0, f"done {home}/releases/{DIGEST}")
    check_complete(home)
    again = run(home)
    assert (again.returncode, last_line(again)) == (0, f"have {home}/releases/{DIGEST}")
    assert leftovers(home) == []


def test_default_home_is_below_the_users(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", SOURCE, "", DIGEST],
        input=b"",
        capture_output=True,
        env={"HOME": str(tmp_path)},
        check=False,
    )
    assert done.stdout.decode().split() == ["need", f"{tmp_path}/.eagle3-console/releases/{DIGEST}"]


@pytest.mark.parametrize(
    ("stdin", "sentence"),
    [
        (frame(PAYLOAD)[:5], "cut short"),
        (frame(PAYLOAD)[:-1], "cut short"),
        (frame(PAYLOAD)[:500], "cut short"),
        (frame(PAYLOAD[:-1] + b"!"), "damaged"),
        ((1 << 60).to_bytes(8, "big"), "at most"),
    ],
)
def test_a_broken_upload_changes_nothing(tmp_path: Path, stdin: bytes, sentence: str) -> None:
    assert run(tmp_path, frame(PAYLOAD)).returncode == 0
    newer = zipped({**FILES, "eagle3_remote/new.py": b""})
    digest = hashlib.sha256(newer).hexdigest()
    done = run(tmp_path, stdin, digest)
    assert done.returncode == 1
    assert sentence in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "releases").iterdir()] == [DIGEST]
    check_complete(tmp_path)


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a/../../evil.py"])
def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    payload = zipped({name: b"x"})
    done = run(tmp_path / "home", frame(payload), hashlib.sha256(payload).hexdigest())
    assert done.returncode == 1
    assert b"outside" in done.stderr
    assert not list(tmp_path.rglob("evil.py"))


def test_no_zip_and_no_digest(tmp_path: Path) -> None:
    done = run(tmp_path, frame(b"hello"), hashlib.sha256(b"hello").hexdigest())
    assert done.returncode == 1
    assert b"not a zip" in done.stderr
    assert run(tmp_path, frame(PAYLOAD), "../x").returncode == 1


_STEPS = [
    "os.makedirs(releases",
    "tempfile.mkdtemp(prefix",
    "archive.read(info)",
    "sync_folder(folder)",
    "os.rename(tmp, final)",
]


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_the_old_release_stays_and_the_next_try_works(tmp_path: Path, step: str, when: str) -> None:
    before = zipped({"old.py": b"old"})
    assert run(tmp_path, frame(before), hashlib.sha256(before).hexdigest()).returncode == 0
    old = {path.name for path in (tmp_path / "releases").iterdir()}
    lines = []
    for line in SOURCE.splitlines():
        die = line[: len(line) - len(line.lstrip())] + "os.kill(os.getpid(), 9)"
        hit = step in line and "def " not in line
        lines += [die, line] if hit and when == "before" else [line, die] if hit else [line]
    done = run(tmp_path, frame(PAYLOAD), source="\n".join(lines))
    assert done.returncode == -9
    there = {path.name for path in (tmp_path / "releases").iterdir()}
    assert old <= there
    if DIGEST in there:
        check_complete(tmp_path)  # a final name is always a whole release
    assert run(tmp_path, frame(PAYLOAD)).returncode == 0
    check_complete(tmp_path)


def test_a_connection_lost_during_the_upload(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", SOURCE, str(tmp_path), DIGEST], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(PAYLOAD)[:100])
    process.stdin.flush()
    assert b"need" in process.stdout.readline() + process.stdout.readline()
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert run(tmp_path, frame(PAYLOAD)).returncode == 0
    check_complete(tmp_path)


def test_two_at_once_both_work(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", SOURCE, str(tmp_path), DIGEST]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for one in both:
        assert one.stdout is not None
        assert b"need" in one.stdout.readline() + one.stdout.readline()  # each believes that it must
    for one in both:
        out, _ = one.communicate(frame(PAYLOAD), timeout=60)
        assert (one.returncode, b"done" in out) == (0, True)
    check_complete(tmp_path)
    assert leftovers(tmp_path) == []


def test_an_incomplete_release_is_made_anew(tmp_path: Path) -> None:
    assert run(tmp_path, frame(PAYLOAD)).returncode == 0
    (tmp_path / "releases" / DIGEST / ".complete").unlink()
    (tmp_path / "releases" / DIGEST / "eagle3_remote" / "__init__.py").write_bytes(b"half")
    assert last_line(run(tmp_path)).startswith("need ")
    assert run(tmp_path, frame(PAYLOAD)).returncode == 0
    check_complete(tmp_path)
    assert leftovers(tmp_path) == []


def test_only_old_leftovers_of_its_own_are_removed(tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    for name in (".tmp-old", ".tmp-young", "something-else"):
        (releases / name).mkdir(parents=True)
    two_hours_ago = time.time() - 7200
    for name in (".tmp-old", "something-else"):
        os.utime(releases / name, (two_hours_ago, two_hours_ago))
    assert run(tmp_path, frame(PAYLOAD)).returncode == 0
    assert {path.name for path in releases.iterdir()} == {".tmp-young", "something-else", DIGEST}


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file")
    assert done.returncode == 1
    assert b"a directory is needed" in done.stderr


def test_a_read_only_and_a_full_home(tmp_path: Path, needs: Callable[[bool, str], None]) -> None:
    needs(os.getuid() == 0, "mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], capture_output=True, check=False
    )
    needs(mount.returncode == 0, f"root may not mount here: {mount.stderr.decode()}")
    try:
        full = run(small, frame(PAYLOAD))
        assert full.returncode == 1
        assert b"No space" in full.stderr
        assert leftovers(small) == []
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        read_only = run(small, frame(PAYLOAD))
        assert read_only.returncode == 1
        assert b"read-only" in read_only.stderr
    finally:
        until(lambda: subprocess.run(["umount", str(small)], check=False).returncode == 0)
