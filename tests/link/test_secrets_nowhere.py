"""Secrets are planted wherever people have them, the console is used as people use it over a real sshd, and then every file
that was written and every word that was said is searched for them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.errors import ConsoleError
from eagle3_console.link.connect import connect
from eagle3_console.link.errors import LinkError
from eagle3_console.link.target import parse
from eagle3_console.report import launch_text
from eagle3_console.session import Session
from eagle3_remote.protocol import JobStatus, LaunchPlan, ServerSpec, Snapshot, StopReport
from tests.box.client import until
from tests.box.test_doctor import CONFIG, make_python
from tests.link.asks import Person
from tests.link.conftest import options_for
from tests.link.sshd import SshdBox, ordinary_user, require, running_sshd, tool

PASSWORD, PASSPHRASE, WRONG = "pw-of-the-login-7f3a", "phrase-of-the-key-91bc", "phrase-that-is-wrong-5d5d"
TOKEN, API_KEY, PROXY = "hf_tokenofthemodel42", "key-of-the-server-c0de", "pw-of-the-proxy-beef"
SECRETS = (PASSWORD, PASSPHRASE, WRONG, TOKEN, API_KEY, PROXY)
KEPT = ("secret.json", "arguments.yaml")
"""Where they may lie: for the owner alone, in the run folder of the job that needs them."""

SGLANG = """
import logging, os, sys, time
argv = sys.argv[1:]
if "--config" in argv:  # as SGLang's own merger does it
    import json
    at = argv.index("--config")
    merged = json.load(open(argv[at + 1]))
    argv = [word for name, value in merged.items() for word in ("--" + name, value)] + argv[:at] + argv[at + 2:]
key = argv[argv.index("--api-key") + 1]
logging.basicConfig(level=logging.INFO)
logging.info(f"server_args=ServerArgs(api_key={key!r}, tp_size=1)")
logging.info("got %d and %d characters", len(key), len(os.environ["HF_TOKEN"]))
time.sleep(600)
"""
"""In place of SGLang, which needs a model and minutes: takes its arguments and logs them as SGLang does."""


@pytest.fixture
def laptop(tmp_path: Path, _no_home: None) -> Path:
    """The folder of the person's own files, with the profile and the key file."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "kimi.toml").write_text(
        f'description = "mine"\n[env]\nHF_TOKEN = "{TOKEN}"\nHTTPS_PROXY = "http://me:{PROXY}@proxy:3128"\nNCCL_DEBUG = "WARN"\n'
    )
    for name, text in (("password", PASSWORD), ("api-key", API_KEY)):
        (folder / name).write_text(text + "\n")
        (folder / name).chmod(0o600)
    return folder


def base_python() -> str:
    """A Python that an ordinary user may start; the tests' own may lie in root's home."""
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        real = Path(os.path.realpath(path))
        if real.exists() and all(parent.stat().st_mode & 0o001 for parent in (real, *real.parents)):
            code = "import sys, venv; sys.exit(sys.version_info < (3, 10))"
            if subprocess.run([path, "-c", code], capture_output=True).returncode == 0:
                return path
    require(None, "no Python 3.10 is in reach of an ordinary user")
    raise AssertionError


@pytest.fixture
def there(tmp_path: Path) -> Iterator[tuple[SshdBox, Path]]:
    """A box that takes a password, and the home of its user, with a model and an SGLang of a kind."""
    with (
        ordinary_user(password=PASSWORD) as account,
        running_sshd(account.name, tmp_path / "sshd", "PasswordAuthentication yes") as box,
    ):
        python = make_python(account.home / "env", {"sglang": "0.5.23"}, base_python())
        (site,) = (account.home / "env").glob("lib/python*/site-packages")
        (site / "sglang" / "__init__.py").write_text("")
        (site / "sglang" / "launch_server.py").write_text(SGLANG)
        (account.home / "model").mkdir()
        (account.home / "model" / "config.json").write_text(json.dumps(CONFIG))
        subprocess.run([tool("chown"), "-R", account.name, str(account.home)], check=True)
        assert python.exists()
        yield box, account.home


def findings(texts: dict[str, bytes]) -> list[str]:
    return [f"{where}: {secret}" for where, text in texts.items() for secret in SECRETS if secret.encode() in text]


def files(*roots: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


def command_lines() -> dict[str, bytes]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found[f"command line of {entry.name}"] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return found


def test_no_secret_anywhere(there: tuple[SshdBox, Path], laptop: Path, tmp_path: Path) -> None:
    box, home = there
    said: dict[str, bytes] = {}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    link = [f"{box.user}@127.0.0.1:{box.port}", "-F", "none", "--known-hosts", str(box.known_hosts)]
    link += ["--password-file", str(laptop / "password"), "--python", str(home / "env" / "bin" / "python")]
    plan = ["--profile", str(laptop / "kimi.toml"), "--model", str(home / "model"), "--port", str(port)]
    key = ["--api-key-file", str(laptop / "api-key")]

    def console(*words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "eagle3_console", *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=120
        )
        said[" ".join(words)] = done.stdout + b"\n" + done.stderr
        text = said[" ".join(words)].decode()
        assert code is None or done.returncode == code, text
        return text

    console("profile", "show", str(laptop / "kimi.toml"))
    console("profile", "show", "--json", str(laptop / "kimi.toml"))
    console("doctor", *link, *plan, code=None)
    console("deploy", *link)
    console(
        "server", "start", *link, *plan, *key, code=5
    )  # a box without torch is not fit: below the box is asked directly
    start_through_the_session(box, home, laptop, port, said)
    console("jobs", "list", *link)
    job = console("jobs", "list", "--json", *link)
    job_id = json.loads(job.partition("\n\n")[0])[0]["status"]["id"]
    until(lambda: "characters" in console("server", "log", "-n", "0", *link))
    log = console("server", "log", "-n", "0", "--quiet", *link)
    assert f"got {len(API_KEY)} and {len(TOKEN)} characters" in log
    assert "api_key='(left out)'" in log
    for words in (("jobs", "show", job_id), ("jobs", "show", "--json", job_id)):
        shown = console(*words[:2], *link, *words[2:])
        assert "(left out)" in shown
    console("server", "status", "--json", *link)
    console("server", "status", "--all", "--json", *link)
    assert findings(command_lines()) == []
    console("server", "stop", *link, code=None)
    console("jobs", "clean", "--older-than", "0m", "--yes", *link)
    log_copy = laptop.parent / "saved.log"
    log_copy.write_text(f"server_args=ServerArgs(api_key='{API_KEY}')\nfailed with HF_TOKEN={TOKEN}\n")
    console("explain", str(log_copy))
    log_copy.unlink()
    assert findings(said) == []

    written = files(home, tmp_path / "sshd", Path(os.environ["HOME"]))
    assert findings({where: text for where, text in written.items() if Path(where).name not in KEPT}) == []
    kept = [Path(where) for where in written if Path(where).name in KEPT]
    assert kept  # the newest server's: a restart needs them
    assert all(path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0 for path in kept)


def start_through_the_session(box: SshdBox, home: Path, laptop: Path, port: int, said: dict[str, bytes]) -> None:
    """Log in with an encrypted key whose passphrase is first mistyped, start, and start again as a restart does."""
    locked = laptop / "locked"
    shutil.copy(box.identity_file, locked)
    locked.chmod(0o600)
    change = [tool("ssh-keygen"), "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", str(locked)]
    subprocess.run(change, check=True, capture_output=True)

    async def go() -> None:
        options = options_for(box, identity_files=(locked,))
        with pytest.raises(LinkError) as refused:
            await connect(parse(box.address), options, Person(passphrases=[WRONG, WRONG, WRONG]))
        said["login refused"] = repr((refused.value, refused.value.__cause__, refused.value.__context__)).encode()

        async def dial() -> object:
            return await connect(parse(box.address), options, Person(passphrases=[WRONG, PASSPHRASE]))

        one = Session(dial, "the box", python=str(home / "env" / "bin" / "python"))  # type: ignore[arg-type]
        await one.connect()
        env = {"HF_TOKEN": TOKEN, "HTTPS_PROXY": f"http://me:{PROXY}@proxy:3128"}
        python = str(home / "env" / "bin" / "python")
        spec = ServerSpec(
            str(home / "model"), python, port, env=env, extra_args=("--device", "cpu", "--api-key", API_KEY)
        )
        bad = dataclasses.replace(spec, extra_args=("--grpc-mode", "--api-key", API_KEY))
        with pytest.raises(ConsoleError) as wrong:
            await one.call("server.start", bad, JobStatus, wait=180)
        said["start refused"] = repr(wrong.value).encode()
        plan = await one.call("server.plan", spec, LaunchPlan, wait=180)
        said["dry run"] = launch_text(plan).encode()
        assert b"handed over in a file that only you can read" in said["dry run"]
        first = await one.call("server.start", spec, JobStatus, 180, "a" * 16)
        assert await one.call("server.start", spec, JobStatus, 180, "a" * 16) == first  # its answer was lost
        with pytest.raises(ConsoleError, match=f"A server runs already: job {first.id}"):
            await one.call("server.start", spec, JobStatus, wait=180)
        seen = await one.call("snapshot", {"paths": {}}, Snapshot)
        said["snapshot"] = repr(seen).encode()
        assert (await one.call("server.stop", {"job": None}, StopReport, wait=180)).job == first.id
        assert seen.server.spec is not None
        await one.call("server.start", seen.server.spec, JobStatus, wait=180)  # as the console was shown it: hidden
        await one.leave()

    asyncio.run(go())
