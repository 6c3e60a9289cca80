"""A real, patched SGLang server that somebody else started, its radix cache on: seen, judged, extracted through, and
stopped only by a typed confirmation."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from eagle3_remote.box import doctor, identity
from eagle3_remote.protocol import (
    E_REFUSED,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    ForeignServer,
    Patched,
    Snapshot,
    StopReport,
    VerifyReport,
    decode,
    encode,
)
from eagle3_remote.protocol.secret import HIDDEN, hide_argv
from eagle3_remote.server import foreign
from tests.box.client import AgentProcess, Answered, agent, until
from tests.patch import servers

MAKE_MODEL = Path(install.__file__).parent / "make_model.py"


@pytest.fixture(scope="module")
def bed() -> install.TestBed:
    return install.ensure(install.VERSIONS[-1])


@pytest.fixture(scope="module")
def theirs(bed: install.TestBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    work = tmp_path_factory.mktemp("theirs")
    model = work / "model"
    subprocess.run([bed.python, MAKE_MODEL, "llama", model], check=True, env={**os.environ, **bed.env})
    with servers.running(bed, model, work, env={layout.ENV_BOUNDARIES: "1,4,6"}) as server:
        yield server


@pytest.fixture
def box(bed: install.TestBed, release: Path, home: Path) -> Iterator[AgentProcess]:
    with agent(release, home, str(bed.python), bed.env) as one:
        yield one


def shown(box: AgentProcess, pid: int) -> ForeignServer:
    found = [decode(ForeignServer, one) for one in box.call("server.foreign")]
    return next(one for one in found if one.pid == pid)


def refusal(box: AgentProcess, method: str, **params: object) -> str:
    with pytest.raises(Answered) as error:
        box.call(method, **params)
    assert error.value.code == E_REFUSED, str(error.value)
    return str(error.value)


def samples(path: Path, count: int = 40) -> Path:
    """Samples of which most begin like another: with a shared cache nearly all of them would lose rows."""
    draw = random.Random(5)
    start = [draw.randrange(3, 1024) for _ in range(120)]
    lines = [json.dumps({"input_ids": [*start[: 40 + place % 7], 7 + place]}) for place in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_it_is_seen_with_all_that_matters(theirs: servers.Server, box: AgentProcess, bed: install.TestBed) -> None:
    one = shown(box, theirs.process.pid)
    assert (one.user, one.url, one.answers) == (doctor.user_name(os.getuid()), theirs.url, True)
    assert one.version == bed.version
    assert one.model == str(theirs.log.parent / "model")
    assert (one.patched, one.dump_dir, one.boundaries, one.final) == (Patched.YES, str(theirs.dump_dir), "1,4,6", "pre")
    assert one.log_path == str(theirs.log)
    assert one.settings["disable_radix_cache"] == "False"
    assert one.settings["tp_size"] == "1"
    assert one.unfit == ()
    assert str(theirs.process.pid) in one.sentence

    def seen() -> bool:  # looked for in the background: the first snapshots may be without it
        found = [one.pid for one in box.ask(Snapshot, "snapshot", paths={}).foreign]
        return found.count(theirs.process.pid) == 1

    until(seen)


def test_its_radix_cache_is_refused_with_the_way_around_a_restart(
    theirs: servers.Server, box: AgentProcess, tmp_path: Path
) -> None:
    data = samples(tmp_path / "data.jsonl")
    asked = {"data": str(data), "out": str(tmp_path / "out"), "server_url": theirs.url}
    assert "add --extra-key" in refusal(box, "extract.start", **asked)
    keyed = {**asked, "extra_key": True}
    assert "boundaries 1, 4, 6, not 2, 4, 5" in refusal(box, "extract.start", **keyed, boundaries=[2, 4, 5])
    assert "leave --dump-dir out" in refusal(box, "extract.start", **keyed, dump_dir=str(tmp_path))
    assert "is not on this machine" in refusal(
        box, "extract.start", **{**keyed, "server_url": "http://192.0.2.1:30000"}
    )
    nobody = f"http://127.0.0.1:{servers.free_port()}"
    assert "no answer from" in refusal(box, "extract.start", **{**keyed, "server_url": nobody})
    assert "not of the form" in refusal(box, "extract.start", **{**keyed, "server_url": "ftp://here"})
    assert not (tmp_path / "out").exists()
    assert box.call("jobs.list", kind="extract") == []


def test_every_row_is_computed_through_its_radix_cache(
    theirs: servers.Server, box: AgentProcess, tmp_path: Path
) -> None:
    data = samples(tmp_path / "data.jsonl")
    spec = ExtractSpec(data=str(data), out=str(tmp_path / "out"), server_url=theirs.url, extra_key=True)
    box.call("extract.start", **encode(spec))

    def status() -> ExtractStatus:
        seen = box.ask(Snapshot, "snapshot", paths={}).extract
        assert seen is not None
        return seen

    until(lambda: status().state in (ExtractState.FINISHED, ExtractState.FAILED), 120, every=0.2)
    assert (status().state, status().stored, status().failed) == (ExtractState.FINISHED, 40, 0), status().sentence
    verified = box.ask(VerifyReport, "verify", dataset=str(tmp_path / "out"))
    assert (verified.ok, verified.samples) == (True, 40)
    assert list(theirs.dump_dir.iterdir()) == []
    # the cache is on all along: without a key of its own a prompt does lose its prefix
    ids = list(range(5, 60))
    cached = [theirs.generate(None, ids)["meta_info"]["cached_tokens"] for _ in range(2)]
    assert cached == [0, len(ids) - 1]


def test_it_is_stopped_only_when_it_was_shown_and_the_boxs_name_was_typed(
    theirs: servers.Server, box: AgentProcess
) -> None:
    pid, name = theirs.process.pid, socket.gethostname()
    assert "was shown" in refusal(box, "server.stop_foreign", pid=pid, confirm=name)
    one = shown(box, pid)
    assert f"--confirm {name}" in refusal(box, "server.stop_foreign", pid=pid, confirm="local")
    assert theirs.process.poll() is None
    children = [member for member in servers.members(pid) if member != pid]
    report = box.ask(StopReport, "server.stop_foreign", pid=pid, confirm=name)
    assert report.stopped, report.sentence
    assert one.user in report.sentence
    theirs.process.wait(10)
    assert len(children) >= 3
    assert not [stat for stat in identity.living() if stat.pid in children]
    assert "any more" in refusal(box, "server.stop_foreign", pid=pid, confirm=name)


@pytest.mark.parametrize(
    ("words", "args"),
    [
        ("python -m sglang.launch_server --port 1", ["--port", "1"]),
        ("/venv/bin/python3.11 -u -m sglang.launch_server --tp 8", ["--tp", "8"]),
        ("/venv/bin/python /venv/bin/sglang serve --port=5", ["--port=5"]),
        ("python3 /src/python/sglang/launch_server.py --x", ["--x"]),
        ("python -m sglang.launch_server", []),
        ("sglang::scheduler_TP0", None),
        ("python -m sglang.bench_serving --port 1", None),
        ("vim sglang/launch_server.py", None),
        ("grep -m sglang.launch_server x", None),
        ("bash -c python_-m_sglang.launch_server", None),
        ("python train.py --server sglang serve.txt", None),
        ("", None),
    ],
)
def test_which_command_lines_are_servers(words: str, args: list[str] | None) -> None:
    assert foreign.launcher_args(words.split()) == args


def test_options_are_read_as_argparse_does_and_keys_are_not_shown() -> None:
    args = ["--port", "1", "--api-key", "s3cret", "--port=2", "--admin-api-key=s3cret"]
    assert foreign.value_of(args, "--port") == "2"
    assert foreign.value_of(args, "--host") == ""
    shown = hide_argv(args)
    assert shown == ("--port", "1", "--api-key", HIDDEN, "--port=2", f"--admin-api-key={HIDDEN}")
