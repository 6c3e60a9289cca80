"""Puts one release on the box. Self-contained: the console runs ``PY -c <this source> HOME SHA256`` (HOME empty:
``~/.eagle3-console``) and feeds its standard input. Python 3.8 and newer, standard library.

Answers, one line each on standard output, the last line counts (a login script may have printed before)::

    have <path>   the release is complete; standard input is not read; exit status 0
    need <path>   now send 8 bytes (length, big endian) and a zip of that length; exit status 10 if nothing is sent
    done <path>   after need: unpacked, checked, in place; exit status 0

Whatever goes wrong is one sentence on standard error with exit status 1; nothing was changed then.

SHA256 is the hex digest of the zip. It is unpacked beside its final place and renamed, so that whoever is killed
wherever leaves the old release usable, and of two at once both succeed. Nothing is executed from the home, so a
``noexec`` file system does not matter.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
import zipfile
from typing import BinaryIO

EXIT_NEEDS = 10
STAMP = ".complete"
STALE_SECONDS = 3600
"""What is older is left over or unused; what is younger may be at work or about to be."""
MAX_PAYLOAD = 64 * 1024 * 1024


class NotSent(Exception):
    """The release is needed and nothing was sent."""


class Failed(Exception):
    """The release cannot be put there; the text is a sentence for a person."""


def is_complete(release: str) -> bool:
    """Whether a release folder was unpacked to its end."""
    return os.path.isfile(os.path.join(release, STAMP))


def read_payload(source: BinaryIO, digest: str) -> bytes:
    """The zip from its frame.

    Raises:
        NotSent: standard input is empty.
        Failed: it is cut short, too long, or not the one that was announced.
    """
    head = source.read(8)
    if not head:
        raise NotSent
    length = int.from_bytes(head, "big")
    if len(head) == 8 and length > MAX_PAYLOAD:
        raise Failed(f"The upload claims {length} bytes; at most {MAX_PAYLOAD} are taken.")
    data = source.read(length) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < length:
        raise Failed("The upload was cut short: the connection was lost. The old release stays; deploy again.")
    if hashlib.sha256(data).hexdigest() != digest:
        raise Failed("The upload arrived damaged (its checksum differs). The old release stays; deploy again.")
    return data


def unpack(data: bytes, releases: str, digest: str) -> None:
    """Unpack beside the final place and rename; whoever comes second finds the work done."""
    tmp = tempfile.mkdtemp(prefix=".tmp-", dir=releases)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                parts = info.filename.split("/")
                if info.filename.startswith("/") or ".." in parts or "\\" in info.filename:
                    raise Failed(f"The release holds the path {info.filename!r}, which leads outside of it.")
                target = os.path.join(tmp, *parts)
                if info.is_dir():
                    os.makedirs(target, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(target), exist_ok=True)
                write(target, archive.read(info))
        write(os.path.join(tmp, STAMP), digest.encode())
        for folder, _, _ in os.walk(tmp):
            sync_folder(folder)
        put(tmp, os.path.join(releases, digest))
        sync_folder(releases)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def put(tmp: str, final: str) -> None:
    """Rename into place. A complete release that is there already wins; an incomplete one is moved away first."""
    for _ in range(5):
        try:
            os.rename(tmp, final)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        if is_complete(final):
            return
        broken = tempfile.mkdtemp(prefix=".tmp-", dir=os.path.dirname(final))
        with contextlib.suppress(FileNotFoundError):  # another bootstrap was faster
            os.rename(final, os.path.join(broken, "broken"))
        shutil.rmtree(broken, ignore_errors=True)
    raise Failed(f"The release folder {final} cannot be put in place: another process keeps making it.")


def write(path: str, data: bytes) -> None:
    """Write a new file and make it durable."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale(releases: str) -> None:
    """Remove what a killed bootstrap left more than an hour ago."""
    for name in os.listdir(releases):
        path = os.path.join(releases, name)
        try:
            if name.startswith(".tmp-") and time.time() - os.lstat(path).st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue


def sentence(error: OSError, home: str) -> str:
    """What an operating system error means here."""
    where = error.filename or home
    if error.errno == errno.EROFS:
        return f"{where} is on a read-only file system: set EAGLE3_HOME to a writable directory."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} may not be written by this user: set EAGLE3_HOME to a writable directory."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"No space (or no inodes, or no quota) is left for {where}: free some, or set EAGLE3_HOME."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{where} is a file where a directory is needed: move it, or set EAGLE3_HOME."
    return f"{where} could not be written: {error.strerror or error}."


def answer(word: str, path: str) -> None:
    """One answer line."""
    sys.stdout.write(f"\n{word} {path}\n")
    sys.stdout.flush()


def run(home: str, digest: str, source: BinaryIO) -> int:
    """The whole conversation; gives the exit code."""
    home = os.path.abspath(os.path.expanduser(home or "~/.eagle3-console"))
    try:
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise Failed(f"{digest!r} is not a SHA-256 digest.")
        releases = os.path.join(home, "releases")
        release = os.path.join(releases, digest)
        if is_complete(release):
            with contextlib.suppress(OSError):  # read-only: nothing is removed there either
                os.utime(os.path.join(release, STAMP))  # its agent starts in a moment: nobody takes it for unused
            answer("have", release)
            return 0
        os.makedirs(releases, mode=0o700, exist_ok=True)
        remove_stale(releases)
        answer("need", release)
        unpack(read_payload(source, digest), releases, digest)
        answer("done", release)
        return 0
    except NotSent:
        return EXIT_NEEDS
    except Failed as error:
        problem = str(error)
    except OSError as error:
        problem = sentence(error, home)
    except zipfile.BadZipFile:
        problem = "The upload is not a zip file. Deploy again."
    sys.stderr.write(problem + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], sys.stdin.buffer))
