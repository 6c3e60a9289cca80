"""What the box will not start, with the reason; nothing is left behind. And whose dump directory is removed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagle3_patch import layout
from eagle3_remote.extract.extraction import ExtractControl
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import (
    E_REFUSED,
    ExtractReport,
    ExtractSpec,
    ExtractState,
    ExtractStatus,
    JobState,
    JobStatus,
    LaunchPlan,
    PatchMarker,
    Phase,
    ServerLog,
    ServerSpec,
    ServerStatus,
    StopReport,
    VerifyQuery,
    decode,
    encode,
)
from eagle3_remote.rpc import Refused
from eagle3_remote.server import dumpdir
from eagle3_remote.server.control import ServerControl
from tests.box.client import AgentProcess, Answered, agent, until
from tests.box.test_doctor import CONFIG, make_python


@pytest.fixture
def box(release: Path, home: Path) -> Iterator[AgentProcess]:
    with agent(release, home) as one:
        yield one


@pytest.fixture
def spec(tmp_path: Path) -> ServerSpec:
    """A server that could be started, were its SGLang more than a name on disk."""
    python = make_python(tmp_path / "env", {"sglang": "0.5.23"})
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return ServerSpec(model=str(tmp_path / "model"), python=str(python), port=port, dump_dir=str(tmp_path / "dump"))


def refused(box: AgentProcess, spec: ServerSpec) -> str:
    for method in ("server.plan", "server.start"):
        with pytest.raises(Answered) as error:
            box.call(method, **encode(spec))
        assert error.value.code == E_REFUSED
        text = str(error.value)
        assert text.endswith(".")
    assert box.call("jobs.list", kind=None) == []
    return text


def test_servers_that_cannot_be_started(box: AgentProcess, spec: ServerSpec, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    plain = make_python(tmp_path / "plain", {})
    cases = {
        "there is no such directory": {"model": "/no/such"},
        "config.json is missing": {"model": str(tmp_path / "empty")},
        "No model is named": {"model": ""},
        "No such file": {"python": "/no/such/python"},
        "has no SGLang": {"python": str(plain)},
        "No Python is named": {"python": ""},
        "outside 0 to 61": {"boundaries": (62,)},
        "is a file: name a directory": {"dump_dir": str(tmp_path / "file")},
        "does not exist: make it": {"dump_dir": str(tmp_path / "no" / "parent")},
        "outside 1 to 65535": {"port": 70000},
    }
    for words, change in cases.items():
        assert words in refused(box, dataclasses.replace(spec, **change))  # type: ignore[arg-type]
    assert not Path(spec.dump_dir).exists()


def test_the_port_is_taken_and_by_whom(box: AgentProcess, spec: ServerSpec) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", spec.port))
        holder.listen()
        assert f"Port {spec.port} is taken by pid {os.getpid()} (user " in refused(box, spec)


def test_the_gpus_are_taken_and_by_whom(release: Path, home: Path, spec: ServerSpec, smi: Path) -> None:
    with agent(release, home, env={"PATH": f"{smi.parent}{os.pathsep}{os.environ['PATH']}"}) as box:
        text = refused(box, spec)
        assert f"The GPUs are taken: GPU 0 (80 GiB) holds 68.4 GiB by pid {os.getpid()} (user " in text
        for change in (
            {"share_gpus": True},
            {"extra_args": ("--device=cpu",)},
            {"env": {"CUDA_VISIBLE_DEVICES": "1"}},
        ):
            box.call("server.plan", **encode(dataclasses.replace(spec, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tp", "args", "judged"),
    [
        (1, (), "GPU 0"),  # of the stand-in's four, only GPU 1 is free
        (1, ("--base-gpu-id=1",), ""),
        (1, ("--base-gpu-id", "2"), "GPU 2"),
        (2, ("--base-gpu-id=1",), "GPU 2"),
        (2, ("--base-gpu-id=1", "--gpu-id-step", "2"), "GPU 3"),
        (1, ("--base-gpu-id=1", "--dp-size", "3"), "GPU 2 GPU 3"),
        (1, ("--base-gpu-id=1", "--dp-size=3", "--enable-dp-attention"), ""),
        (2, ("--base-gpu-id=1", "--nnodes=2"), ""),
        (8, ("--device", "cpu"), ""),
    ],
)
@pytest.mark.usefixtures("smi")
def test_the_gpus_that_are_judged_are_those_that_the_server_would_be_on(
    home: Path, release: Path, spec: ServerSpec, tp: int, args: tuple[str, ...], judged: str
) -> None:
    control = ServerControl(home, release)
    asked = dataclasses.replace(spec, tp=tp, extra_args=args)
    if not judged:
        control.plan(asked)
        return
    with pytest.raises(Refused) as error:
        control.plan(asked)
    assert " ".join(re.findall(r"GPU \d(?= \()", str(error.value))) == judged


def test_a_parser_that_cannot_be_asked_is_said_and_stops_nothing(box: AgentProcess, spec: ServerSpec) -> None:
    plan = box.ask(LaunchPlan, "server.plan", **encode(spec))
    assert plan.notes[-1].startswith("arguments NOT checked: its argument parser cannot be loaded (")


def extraction(home: Path, release: Path, url: str, dump_dir: str) -> jobs.Job:
    line = [sys.executable, "-c", "import time; time.sleep(600)"]
    message = {"data": "d", "out": "/o", "server_url": url, "dump_dir": dump_dir}
    return jobs.start(home, release, jobs.new_id("extract"), line, {}, message)


def test_an_extraction_that_waits_for_its_server_finds_its_dumps_where_they_were(
    box: AgentProcess, spec: ServerSpec, home: Path, release: Path, tmp_path: Path
) -> None:
    dump = tmp_path / "dumps"
    dumpdir.create(dump, "server-20260101T000000-aaaa")  # of the server before
    waiting = extraction(home, release, f"http://127.0.0.1:{spec.port}", str(dump))
    plan = box.ask(LaunchPlan, "server.plan", **encode(dataclasses.replace(spec, dump_dir="")))
    assert plan.env["EAGLE3_DUMP_DIR"] == str(dump)
    job = box.ask(JobStatus, "server.start", **encode(dataclasses.replace(spec, dump_dir="")))
    until(lambda: box.call("jobs.list", kind="server")[0]["state"] == "finished")
    stopping.stop(waiting, grace=20)
    assert "was removed" in box.ask(StopReport, "server.stop", job=job.id).sentence  # it is this server's now
    assert not dump.exists()


def test_the_dump_directory_is_taken_and_by_whom(
    box: AgentProcess, spec: ServerSpec, home: Path, release: Path
) -> None:
    other = extraction(home, release, "http://127.0.0.1:1", spec.dump_dir)
    with pytest.raises(Answered, match=f"is taken by job {other.id}, which collects from it for http://127.0.0.1:1"):
        box.call("server.plan", **encode(spec))
    stopping.stop(other, grace=20)
    env = {**os.environ, "EAGLE3_DUMP_DIR": spec.dump_dir}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env) as stranger:
        try:
            with pytest.raises(Answered, match=rf"is taken by pid {stranger.pid} \(user .*: name another one\."):
                until(lambda: box.call("server.plan", **encode(spec)) is None, 10)
        finally:
            stranger.kill()
    box.call("server.plan", **encode(spec))


def test_a_directory_is_the_same_however_it_is_spelled(home: Path, release: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    job = extraction(home, release, "http://127.0.0.1:1", str(link))
    used = dumpdir.in_use(home, f"{real}/")
    assert used is not None
    assert used.id == job.id
    assert dumpdir.in_use(home, "") is None
    assert dumpdir.in_use(home, str(tmp_path)) is None
    stopping.stop(job, grace=20)


def test_a_server_with_the_hand_made_patch_has_its_directory_too(home: Path, tmp_path: Path) -> None:
    env = {**os.environ, layout.ENV_DUMP_DIR: "", layout.ENV_DUMP_DIR_OLD: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env) as stranger:
        try:
            assert f"pid {stranger.pid}" in until(lambda: dumpdir.taken(home, tmp_path, "http://x"), 10)
        finally:
            stranger.kill()


LISTENS = "import socket, time; s = socket.create_server(('127.0.0.1', {port})); print(1, flush=True); time.sleep(600)"


def test_a_plan_may_have_the_port_of_the_server_that_it_follows(
    box: AgentProcess, spec: ServerSpec, home: Path, release: Path
) -> None:
    line = [sys.executable, "-u", "-c", LISTENS.format(port=spec.port)]
    env = {"EAGLE3_DUMP_DIR": spec.dump_dir}
    ours = jobs.start(home, release, jobs.new_id("server"), line, env, encode(spec))
    until(lambda: ours.log_path.read_text() == "1\n")
    assert str(spec.port) in box.ask(LaunchPlan, "server.plan", **encode(spec)).argv
    with pytest.raises(Answered, match=f"A server runs already: job {ours.id}"):
        box.call("server.start", **encode(spec))
    stopping.stop(ours, grace=20)
    assert not Path(spec.dump_dir).exists()


@pytest.mark.parametrize(
    ("port", "words"), [(True, "Port {port} is taken"), (False, "The dump directory {dump} is taken")]
)
def test_a_server_of_another_box_folder_is_not_one_that_will_end(
    box: AgentProcess, spec: ServerSpec, port: bool, words: str
) -> None:
    code = LISTENS.format(port=spec.port if port else 0)
    env = {**os.environ, "EAGLE3_JOB": "server-20261129T000000-abcd"}
    if not port:
        env["EAGLE3_DUMP_DIR"] = spec.dump_dir
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            assert words.format(port=spec.port, dump=spec.dump_dir) in refused(box, spec)
        finally:
            other.kill()


def test_a_plan_shows_the_whole_line(box: AgentProcess, spec: ServerSpec, release: Path) -> None:
    plan = box.ask(LaunchPlan, "server.plan", **encode(dataclasses.replace(spec, dump_dir="")))
    assert plan.argv[0] == spec.python
    assert plan.sglang_version == "0.5.23"
    assert plan.env["EAGLE3_DUMP_DIR"].startswith("/dev/shm/eagle3-console")
    assert plan.env["PYTHONPATH"].startswith(f"{release}/eagle3_patch/entry")
    assert not Path(plan.env["EAGLE3_DUMP_DIR"]).exists()


def test_a_server_that_dies_at_once_says_why_and_leaves_nothing(box: AgentProcess, spec: ServerSpec) -> None:
    job = box.ask(JobStatus, "server.start", **encode(spec))  # its sglang cannot be imported
    until(lambda: box.call("jobs.list", kind="server")[0]["state"] == "finished")
    server = box.call("snapshot", paths={})["server"]
    assert server["phase"] == "failed"
    assert "exit code 1" in server["sentence"]
    assert server["log"]["root_cause"] == "RuntimeError: imported"
    assert server["dump_dir"] == spec.dump_dir
    report = box.ask(StopReport, "server.stop", job=job.id)
    assert not report.stopped
    assert not Path(spec.dump_dir).exists()


def test_what_a_crashed_server_dumped_is_swept_at_the_next_start(box: AgentProcess, spec: ServerSpec) -> None:
    box.call("server.start", **encode(spec))
    until(lambda: box.call("jobs.list", kind="server")[0]["state"] == "finished")
    (Path(spec.dump_dir) / "req_e3-1").mkdir()
    other = dataclasses.replace(spec, dump_dir=spec.dump_dir + "2")
    box.call("server.start", **encode(other))
    assert not Path(spec.dump_dir).exists()
    until(lambda: all(job["state"] == "finished" for job in box.call("jobs.list", kind="server")))


def test_what_a_dead_server_left_running_is_named_and_can_be_stopped(
    box: AgentProcess, spec: ServerSpec, home: Path, release: Path
) -> None:
    code = "import os, time\nif os.fork() == 0:\n    os.setsid(); print('left', flush=True); time.sleep(600)\n"
    job = jobs.start(home, release, jobs.new_id("server"), [sys.executable, "-c", code], {}, encode(spec))
    until(lambda: jobs.state_of(job) is JobState.FINISHED and job.log_path.read_text() == "left\n")
    with pytest.raises(Answered, match=f"{job.id} still live: pid"):
        box.call("server.start", **encode(spec))
    assert box.ask(StopReport, "server.stop", wait=90, job=None).stopped
    assert stopping.members(job) == []


def server_job(home: Path, release: Path, dump: Path) -> jobs.Job:
    job_id = jobs.new_id("server")
    dumpdir.create(dump, job_id)
    message = {"model": "m", "python": "p", "port": 1}
    return jobs.start(home, release, job_id, [sys.executable, "-c", "pass"], {}, message, facts={"dump_dir": str(dump)})


def test_a_directory_that_was_there_is_never_removed(home: Path, release: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "mine.txt").write_text("precious")
    job = server_job(home, release, given)
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    assert "was there before" in dumpdir.release(home, job)
    dumpdir.sweep(home)
    assert [path.name for path in given.iterdir()] == ["mine.txt"]


def test_a_directory_of_another_job_is_never_removed(home: Path, tmp_path: Path) -> None:
    dumpdir.create(tmp_path / "dump", "server-20260101T000000-aaaa")
    assert not dumpdir.remove(tmp_path / "dump", "server-20260101T000000-bbbb")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "dump")
    assert not dumpdir.remove(link, "server-20260101T000000-aaaa")
    assert (tmp_path / "dump").is_dir()
    assert dumpdir.remove(tmp_path / "dump", "server-20260101T000000-aaaa")
    assert not (tmp_path / "dump").exists()


def test_dumps_stay_while_an_extraction_collects_them(home: Path, release: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    server = server_job(home, release, dump)
    assert (dump.stat().st_mode & 0o777) == 0o700
    until(lambda: jobs.state_of(server) is JobState.FINISHED)
    code = "import time; time.sleep(600)"
    message = {"data": "d", "out": "/o", "dump_dir": str(dump)}
    extract = jobs.start(home, release, jobs.new_id("extract"), [sys.executable, "-c", code], {}, message)
    assert f"job {extract.id} still collects" in dumpdir.release(home, server)
    dumpdir.sweep(home)
    assert dump.is_dir()
    stopping.stop(extract, grace=20)
    assert "was removed" in dumpdir.release(home, server)
    assert not dump.exists()


MARKER = PatchMarker("0.1", "0.5.23", "LlamaForCausalLM", 8, 64, (2, 4, 5), "pre", 0, 1, True)


@pytest.fixture
def fit(tmp_path: Path) -> ServerStatus:
    """A server as the status reader would see a fit one."""
    return ServerStatus(
        phase=Phase.READY,
        sentence="The server is ready.",
        job=JobStatus("server-x", "server", JobState.RUNNING, 1, None, 0.0, None, "/r", "/r/out.log", 0, 0),
        spec=ServerSpec(model="/models/m", python=sys.executable, port=31234),
        dump_dir="/dev/shm/d",
        argv=("python", "--disable-radix-cache"),
        log=ServerLog(phase=Phase.READY, markers=(MARKER,), chunked_prefill_size=256),
    )


@pytest.fixture
def wish(tmp_path: Path) -> ExtractSpec:
    (tmp_path / "data.jsonl").write_text("{}\n")
    return ExtractSpec(data=str(tmp_path / "data.jsonl"), out=str(tmp_path / "out"))


def test_blanks_are_filled_from_the_running_server(
    home: Path, release: Path, fit: ServerStatus, wish: ExtractSpec
) -> None:
    control = ExtractControl(home, release)
    status = control.start(wish, fit)
    job = jobs.find(home, status.id)
    assert job is not None
    assert job.spec["message"] == {
        **encode(wish),
        "server_url": "http://127.0.0.1:31234",
        "dump_dir": "/dev/shm/d",
        "python": sys.executable,
        "model": "/models/m",
        "boundaries": [2, 4, 5],
        "final": "pre",
        "tokens_in_flight": 1024,
    }
    assert job.spec["argv"][-1] == str(job.run_dir)
    assert job.spec["argv"][:3] == [sys.executable, "-u", "-c"]
    stopping.stop(job, grace=20)


def test_extractions_that_cannot_be_started(
    home: Path, release: Path, fit: ServerStatus, wish: ExtractSpec, tmp_path: Path
) -> None:
    control = ExtractControl(home, release)
    (tmp_path / "file").write_text("")
    cases = {
        "does not exist on this box": {"data": "/no/such.jsonl"},
        "is a file: name a directory": {"out": str(tmp_path / "file")},
        "does not exist: make it first": {"out": str(tmp_path / "no" / "out")},
        "captures the boundaries 2, 4, 5, not 1, 2": {"boundaries": (2, 1)},
        "final state pre-norm, post-norm": {"final": "post"},
    }
    for words, change in cases.items():
        with pytest.raises(Refused, match=words):
            control.start(dataclasses.replace(wish, **change), fit)  # type: ignore[arg-type]
    assert jobs.everything(home) == []


def test_a_layout_that_cannot_be_read_is_refused_before_anything_is_sent(
    home: Path, release: Path, fit: ServerStatus, wish: ExtractSpec
) -> None:
    """For an extraction, its plan and a check against the server alike."""
    assert fit.spec is not None
    control, spec = ExtractControl(home, release), dataclasses.replace(fit.spec, env={"EAGLE3_DUMP_LAYOUT": "pt"})
    loose = dataclasses.replace(fit, spec=spec)
    Path(wish.out).mkdir()
    for ask in (
        lambda: control.start(wish, loose),
        lambda: control.plan(wish, loose),
        lambda: control.verify(VerifyQuery(wish.out, "running"), lambda: loose),
    ):
        with pytest.raises(Refused, match=r"dumps in the layout 'pt' .*restart it without that"):
            ask()
    assert jobs.everything(home) == []
    plain = dataclasses.replace(fit, spec=dataclasses.replace(spec, env={"EAGLE3_DUMP_LAYOUT": "safetensors"}))
    with pytest.raises(Refused, match="does not exist on this box"):
        control.start(dataclasses.replace(wish, data="/no/such.jsonl"), plain)


def test_one_extraction_at_a_time(home: Path, release: Path, fit: ServerStatus, wish: ExtractSpec) -> None:
    code = "import time; time.sleep(600)"
    message = encode(wish)
    job = jobs.start(home, release, jobs.new_id("extract"), [sys.executable, "-c", code], {}, message)
    Path(wish.out).mkdir()
    link = Path(wish.out).with_name("link")
    link.symlink_to(wish.out)
    for out in (wish.out, str(link)):
        with pytest.raises(Refused, match=f"Job {job.id} already extracts into"):
            ExtractControl(home, release).start(dataclasses.replace(wish, out=out), fit)
    with pytest.raises(Refused, match=f"Job {job.id} extracts into {wish.out}, and one extraction runs at a time"):
        ExtractControl(home, release).start(dataclasses.replace(wish, out=f"{wish.out}-2"), fit)
    stopping.stop(job, grace=20)


def test_a_report_of_a_killed_extraction_says_so(home: Path, release: Path, wish: ExtractSpec) -> None:
    code = "import time; time.sleep(600)"
    message = encode(dataclasses.replace(wish, python=sys.executable))
    job = jobs.start(home, release, jobs.new_id("extract"), [sys.executable, "-c", code], {}, message)
    wrote = ExtractStatus(ExtractState.RUNNING, "Extracting.", total=8, stored=3)
    (job.run_dir / "progress.json").write_text(json.dumps(encode(wrote)))
    assert job.leader is not None
    os.kill(job.leader.pid, signal.SIGKILL)
    until(lambda: jobs.state_of(job) is JobState.FINISHED)
    status = decode(ExtractReport, ExtractControl(home, release).report(None)).status
    assert status.state is ExtractState.FAILED
    assert "was killed: 3 of 8 samples are stored" in status.sentence
