"""What is a secret, where it is kept on the box, and that the server and our own requests get it all the same."""

from __future__ import annotations

import http.server
import json
import logging
import os
import socket
import sys
import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_patch import hush, layout
from eagle3_remote.extract.client import Client
from eagle3_remote.job import jobs, secretfile, stopping
from eagle3_remote.job.secretfile import Secrets
from eagle3_remote.protocol import JobDetail, LaunchPlan, ServerSpec, encode
from eagle3_remote.protocol.secret import (
    HIDDEN,
    hide_argv,
    hide_assigned,
    hide_env,
    hide_text,
    is_secret,
    is_secret_flag,
)
from eagle3_remote.rpc import Refused
from eagle3_remote.server import apikey, handover
from eagle3_remote.server.health import opener
from eagle3_remote.server.serverinfo import ask_info
from tests.box.client import agent, until

KEY = "s3cret-api-key"
SLEEP = "import time; time.sleep(600)"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGINGFACE_HUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "API_KEY",
        "OPENAI_APIKEY",
        "DB_PASSWORD",
        "GIT_PASSWD",
        "SLACK_WEBHOOK_URL",
        "SSH_PASSPHRASE",
        "MY_CREDENTIALS",
        "hfToken",
        "PROXY_AUTH",
        "WANDB_API_KEY",
        "HFTOKEN",
    ],
)
def test_names_that_are_secrets(name: str) -> None:
    assert is_secret(name)
    assert hide_env({name: "value"}) == {name: HIDDEN}


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "SSH_AUTH_SOCK",
        "TOKENIZERS_PARALLELISM",
        "SGLANG_MAX_TOKENS",
        "NCCL_DEBUG",
        "KEYBOARD",
        "PASSTHROUGH",
        "CUDA_VISIBLE_DEVICES",
        "EAGLE3_DUMP_DIR",
        "AUTHOR",
    ],
)
def test_names_that_are_none(name: str) -> None:
    assert not is_secret(name)


def test_an_address_with_a_password_is_one_whatever_its_name() -> None:
    assert is_secret("HTTPS_PROXY", "http://user:pw@proxy:3128")
    assert not is_secret("HTTPS_PROXY", "http://proxy:3128")


def test_flags() -> None:
    line = [
        "--api-key",
        "A",
        "--admin-api-key=B",
        "--max-total-tokens",
        "5",
        "--ssl-keyfile",
        "/f",
        "--tokenizer-path",
        "/t",
    ]
    shown = ("--api-key", HIDDEN, f"--admin-api-key={HIDDEN}", *line[3:])
    assert hide_argv(line) == shown
    assert hide_argv(["env", "HF_TOKEN=x", "TP=2", "--api-key"]) == ("env", f"HF_TOKEN={HIDDEN}", "TP=2", "--api-key")
    assert is_secret_flag("--ssl-keyfile-password")
    assert not is_secret_flag("--speculative-token-map")
    assert hide_text("it said long one, A", ["long one", "A"]) == f"it said {HIDDEN}, A"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ServerArgs(tp=1, api_key='s3\\'cret', admin_api_key=None)", "ServerArgs(tp=1, api_key='(left out)', admin_api_key=None)"),
        ("eos_token='</s>' max_total_tokens=5 KeyError: 'x'",) * 2,
        ('HF_TOKEN = "abc"', 'HF_TOKEN = "(left out)"'),
        ('{"api_key": "a b"}', '{"api_key": "(left out)"}'),
        ("via http://me:pw@proxy/", "via http://(left out)@proxy/"),
        ("argument --api-key: expected one argument: use --token to log in, --auth is required, --password cannot be empty",) * 2,
        ("Bearer token expired",) * 2,
        ("Authorization: Bearer k3y", "Authorization: Bearer (left out)"),
        ("--password\nnext line, api_key =\n[2026-01-01 00:00:00] up",) * 2,
        ("--password=root --api-key abcde", "--password=(left out) --api-key (left out)"),
        ("password=(left out)and then --token (left out)x", "password=(left out) then --token (left out)"),
        ("password=(left out), --token (left out)",) * 2,
    ],
)  # fmt: skip
def test_texts_of_others(text: str, shown: str) -> None:
    assert hide_assigned(text) == shown


words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=12)


@given(value=words.filter(lambda text: not text.startswith("--") and text != HIDDEN), joined=st.booleans(), name=words)
def test_what_is_hidden_comes_back_as_it_was(value: str, joined: bool, name: str) -> None:
    line = [f"--api-key={value}"] if joined else ["--api-key", value]
    env = {f"{name}_TOKEN": value, "TP": "2"}
    secrets = Secrets.of(env, line)
    assert secrets.restored(hide_env(env), hide_argv(line)) == (env, tuple(line))
    argv, files = handover.in_a_file(("python", *line, "--tp-size", "2"), secrets, Path("/run"))
    assert argv == ("python", "--tp-size", "2", "--config", "/run/arguments.yaml")
    assert json.loads(files["arguments.yaml"]) == {"api-key": value}


@pytest.mark.parametrize(
    "line",
    [
        ("--lora-paths", "a=s3://u:p@h/x", "b=s3://u:q@h/y"),
        ("--lora-paths", "s3://u:p@h/x", "plain", "s3://u:q@h/y", "--tp-size", "2"),
        ("--lora-paths", "plain", "b=s3://u:q@h/y", "--api-key", "K"),
        ("--lora-paths", "a=s3://u:p@h/x"),
        ("--api-key=K", "--lora-paths", "s3://u:p@h/x", "s3://u:p@h/x"),
    ],
)
def test_arguments_with_several_values_keep_all_of_them(line: tuple[str, ...]) -> None:
    secrets = Secrets.of({}, line)
    assert secrets.restored({}, hide_argv(line)) == ({}, line)
    argv, files = handover.in_a_file(("python", "-m", "x", *line), secrets, Path("/run"))
    assert hide_argv(argv) == argv
    said = list(argv[3 : argv.index("--config")])
    for name, value in json.loads(files["arguments.yaml"]).items():  # as SGLang's merger does
        said += [f"--{name}", *(value if isinstance(value, list) else [value])]
    assert grouped(said) == grouped(" ".join(line).replace("=K", " K").split())


def grouped(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            flag = word
        found.setdefault(flag, []).append(word)
    return found


def spec(**changes: object) -> ServerSpec:
    given = {"model": "/m", "python": "/p", "env": {"HF_TOKEN": "hf_1"}, "extra_args": ("--api-key", KEY)}
    return ServerSpec(**{**given, **changes})  # type: ignore[arg-type]


def test_a_line_that_is_shown_has_none_and_says_how_they_get_there() -> None:
    plan = LaunchPlan(("python", "--api-key", KEY), {"HF_TOKEN": "hf_1"}, "0.5.9")
    shown = handover.shown(plan)
    assert KEY not in str(shown)
    assert "hf_1" not in str(shown)
    assert "a file that only you can read" in shown.notes[-1]
    own = handover.shown(LaunchPlan(("python", "--api-key", KEY, "--config", "/mine.yaml"), {}, "0.5.9"))
    assert KEY not in str(own)
    assert "VISIBLE to every user" in own.notes[-1]
    assert (
        handover.in_a_file(("--api-key", KEY, "--config=/mine.yaml"), Secrets({}, {"--api-key": KEY}), Path("/r"))[1]
        == {}
    )


def server_job(home: Path, release: Path, code: str = SLEEP, port: int = 30000, host: str = "127.0.0.1") -> jobs.Job:
    job_id = jobs.new_id("server")
    secrets = handover.of(spec())
    message = encode(handover.hidden(spec(port=port, host=host)))
    argv, files = handover.in_a_file(
        (sys.executable, "-c", code, "--api-key", KEY), secrets, jobs.runs_dir(home) / job_id
    )
    return jobs.start(home, release, job_id, argv, hide_env(spec().env), message, secrets=secrets, files=files)


def test_the_server_gets_them_and_nobody_else_sees_them(home: Path, release: Path) -> None:
    code = (
        "import json, os, sys, time\n"
        "at = sys.argv.index('--config') + 1\n"
        "key = json.load(open(sys.argv[at]))['api-key']\n"
        f"print(os.environ['HF_TOKEN'] == 'hf' + '_1', key == {KEY[:4]!r} + {KEY[4:]!r}, flush=True)\n"
        "time.sleep(600)\n"
    )
    job = server_job(home, release, code)
    try:
        until(lambda: job.log_path.read_bytes() == b"True True\n")
        leader = job.leader
        assert leader is not None
        assert KEY.encode() not in Path(f"/proc/{leader.pid}/cmdline").read_bytes()
        holding = {path.name for path in job.run_dir.iterdir() if path.is_file() and KEY.encode() in path.read_bytes()}
        assert holding == {"secret.json", "arguments.yaml"}
        assert {oct(path.stat().st_mode & 0o777) for path in job.run_dir.iterdir()} == {"0o600"}
        assert job.run_dir.stat().st_mode & 0o777 == 0o700
        with agent(release, home) as one:
            detail = one.ask(JobDetail, "jobs.show", job=job.id, lines=10)
            answers = [one.call("snapshot", paths={}), one.call("jobs.records"), one.call("jobs.list", kind=None)]
            for text in (str(detail), *map(str, answers)):
                assert KEY not in text
                assert "hf_1" not in text
            assert detail.env["HF_TOKEN"] == HIDDEN
        assert handover.restored(home, handover.hidden(spec())) == spec()  # what a console sends back for a restart
    finally:
        stopping.stop(job, grace=5)
    assert handover.restored(home, handover.hidden(spec())) == spec()


def test_a_secret_that_is_not_kept_is_asked_for_again(home: Path) -> None:
    with pytest.raises(Refused, match=r"HF_TOKEN is a secret that is not kept here any more: say it again"):
        handover.restored(home, handover.hidden(spec()))
    assert handover.restored(home, spec()) == spec()


class _Asks(http.server.BaseHTTPRequestHandler):
    """A server that asks for a key, as SGLang's middleware does; a stand-in, since SGLang needs a model."""

    seen: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/server_info")
            self.end_headers()
            return
        good = self.headers.get("Authorization") == f"Bearer {KEY}"
        body = json.dumps({"model_path": "/m"} if good else {"error": "Unauthorized"}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[int]:
    monkeypatch.setenv("EAGLE3_HOME", str(home))
    monkeypatch.setattr(_Asks, "seen", [])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Asks)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


async def test_our_requests_carry_the_key_of_our_living_server_and_of_no_other(
    asking: int, home: Path, release: Path
) -> None:
    url = f"http://127.0.0.1:{asking}"
    assert "asks for an API key" in ask_info(url)[1]
    job = server_job(home, release, port=asking)
    assert ask_info(url) == ({"model_path": "/m"}, "")
    client = Client(url)
    assert await client._json("/server_info") == {"model_path": "/m"}
    await client.close()
    assert _Asks.seen[-1] == f"Bearer {KEY}"
    stopping.stop(job, grace=5)
    ask_info(url)  # whoever has the port now does not get it
    assert _Asks.seen[-1] is None


@pytest.mark.parametrize(
    ("host", "url", "ours"),
    [
        ("127.0.0.1", "http://127.0.0.1:7", True),
        ("127.0.0.1", "http://localhost:7", True),
        ("0.0.0.0", "http://127.0.0.1:7", True),
        ("0.0.0.0", f"http://{socket.gethostname()}:7", True),
        ("127.0.0.1", "http://127.0.0.1:8", False),
        ("127.0.0.1", "http://127.0.0.2:7", False),
        ("0.0.0.0", "http://192.0.2.7:7", False),
        ("127.0.0.1", "http://192.0.2.7:7", False),
        ("0.0.0.0", "http://no.such.name.invalid:7", False),
        ("127.0.0.1", "http://127.0.0.1", False),
    ],
)
def test_a_jobs_key_goes_to_where_it_listens_and_nowhere_else(
    home: Path, release: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str, ours: bool
) -> None:
    monkeypatch.setenv("EAGLE3_HOME", str(home))
    job = server_job(home, release, port=7, host=host)
    try:
        assert apikey.key_for(url) == (KEY if ours else "")
    finally:
        stopping.stop(job, grace=5)


def test_a_job_without_a_key_of_its_own_gets_the_one_of_the_environment(
    asking: int, home: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the key stands in a person's own ``--config``."""
    monkeypatch.setenv(apikey.ENV, KEY)
    own = spec(port=asking, extra_args=("--config", "/mine.yaml"))
    job = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-c", SLEEP], {}, encode(own))
    try:
        assert ask_info(f"http://127.0.0.1:{asking}") == ({"model_path": "/m"}, "")
    finally:
        stopping.stop(job, grace=5)


def test_a_key_for_somebody_elses_server(asking: int, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{asking}"
    with apikey.using(url, KEY):
        assert ask_info(url)[0] == {"model_path": "/m"}
        assert apikey.key_for("http://127.0.0.1:1") == ""
        with pytest.raises(urllib.error.HTTPError):  # it does not follow to another place
            opener().open(f"{url}/away", timeout=10)
    assert _Asks.seen[-1] is None
    assert ask_info(url)[0] == {}
    monkeypatch.setenv(apikey.ENV, KEY)
    assert ask_info(url)[0] == {"model_path": "/m"}


def test_the_servers_own_log_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd = "it's \\ odd"
    secretfile.write(
        tmp_path, Secrets({"HF_TOKEN": "hf_1234", "PIN_TOKEN": "0001"}, {"--api-key": KEY, "--admin-api-key": odd})
    )
    monkeypatch.setenv(layout.ENV_HUSH, str(tmp_path / secretfile.FILE))
    before = logging.getLogRecordFactory()
    try:
        hush.install()
        log = logging.getLogger("sglang")
        log.warning(f"server_args=ServerArgs(api_key={KEY!r}, admin={odd!r})")
        log.warning("token %s and %d", "hf_1234", 5)
        log.warning("nothing in %s", "it")
        log.warning("100012, x0001, 0001 and (0001)")
        try:
            raise ValueError(f"refused with {KEY}")
        except ValueError:
            log.exception("it failed", stack_info=True)
    finally:
        logging.setLogRecordFactory(before)
    assert [record.getMessage() for record in caplog.records] == [
        "server_args=ServerArgs(api_key='(left out)', admin=\"(left out)\")",
        "token (left out) and 5",
        "nothing in it",
        "100012, x0001, (left out) and ((left out))",
        "it failed",
    ]
    written = logging.Formatter().format(caplog.records[-1])
    assert "ValueError: refused with (left out)" in written
    assert KEY not in caplog.text + written


@pytest.mark.parametrize("text", ["", "{", "[]", '{"env": 3}'])
def test_a_file_of_secrets_that_cannot_be_read_changes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret.json").write_text(text)
    assert hush.read(str(tmp_path / "secret.json")) == []
    assert hush.read("/no/such") == []
    assert not secretfile.read(tmp_path)
    assert os.listdir(tmp_path) == ["secret.json"]
