"""The demo: the whole job on this machine, over real SSH to the embedded box, with a real SGLang on the CPU."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from eagle3_console import report
from eagle3_console.commands import make_session
from eagle3_console.demo.box import EmbeddedBox, embedded_box
from eagle3_console.demo.testbed import install
from eagle3_console.errors import BoxNotFit, ConsoleError, UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import STOP_SECONDS, Flow
from eagle3_console.headless import Narrator, print_json, print_text
from eagle3_console.plan import Plan
from eagle3_console.session import Session
from eagle3_remote.protocol import JobState, Snapshot, StopReport

_VOCAB = 1024


async def demo(args: argparse.Namespace) -> int:
    """Set up the test bed, open the embedded box, do the main job, and leave only what ``--keep`` asks for.

    Raises:
        BoxNotFit: SGLang cannot run on this machine.
        UsageError: ``--keep`` names something that is not an empty or absent directory.
    """
    narrate = Narrator(quiet=args.quiet)
    bed = await _test_bed(args.sglang or install.VERSIONS[-1], narrate)
    if args.prepare:
        return ExitCode.GOOD
    kept = _kept_dir(args.keep)
    with _scratch() as scratch:
        keep = kept or scratch / "kept"
        keep.mkdir(parents=True, exist_ok=True)
        narrate.line(f"making a tiny {args.arch} model and {args.samples} samples in {keep}")
        await _make_inputs(bed, args, keep)
        async with embedded_box(scratch, bed.env) as box:
            plan = Plan(
                model=str(keep / "model"),
                data=str(keep / "tokenized_data.jsonl"),
                out=str(keep / "dataset"),
                port=_free_port(),
                server_args=(*bed.server_args, "--dtype", args.dtype),
            )
            async with _stopped_afterwards(box) as session:
                if args.headless:
                    return await _headless(session, plan, narrate, args, keep)
                from eagle3_console.screen import open_screen

                return await open_screen(session, plan, hands_off=True)


async def _headless(session: Session, plan: Plan, narrate: Narrator, args: argparse.Namespace, keep: Path) -> int:
    flow = Flow(session, plan, narrate)
    await flow.watcher.connect()
    result = await flow.run()
    facts = report.run_json(result)
    (keep / "report.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if args.json:
        print_json(facts)
    else:
        print_text(report.run_markdown(result))
    return result.exit_code


async def _test_bed(version: str, narrate: Narrator) -> install.TestBed:
    try:
        return await asyncio.to_thread(install.ensure, version, narrate.line)
    except install.TestBedUnavailable as error:
        raise BoxNotFit(str(error)) from error


def _kept_dir(option: str) -> Path | None:
    if not option:
        return None
    path = Path(option).expanduser().resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"--keep {path} exists and is not an empty directory: name another.")
    return path


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="eagle3-demo-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def _make_inputs(bed: install.TestBed, args: argparse.Namespace, keep: Path) -> None:
    model = ["make_model.py", args.arch, str(keep / "model"), "--dtype", args.dtype]
    data = ["make_data.py", str(keep / "tokenized_data.jsonl"), "--samples", str(args.samples), "--vocab", str(_VOCAB)]
    for script, *words in (model, data):
        argv = [str(bed.python), str(install.HERE / script), *words]
        made = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True)
        if made.returncode != 0:
            raise BoxNotFit(f"{script} failed in {bed.python}: {made.stderr.strip()[-500:]}")


@contextlib.asynccontextmanager
async def _stopped_afterwards(box: EmbeddedBox) -> AsyncIterator[Session]:
    """A session on the box; whatever was started there is stopped again, also after a failure or ctrl-C."""
    session = _session(box)
    try:
        yield session
    finally:
        cleaner = _session(box)
        try:
            await asyncio.shield(_stop_all(cleaner))
        except ConsoleError as error:
            print(f"eagle3-console: the demo could not clean up: {error}", file=sys.stderr)  # noqa: T201
        finally:
            await cleaner.drop()
            await session.drop()


def _session(box: EmbeddedBox) -> Session:
    options = argparse.Namespace(
        host=box.address,
        ssh_config="none",
        identity=[str(box.identity_file)],
        known_hosts=str(box.known_hosts),
        host_key="",
        accept_new_host_key=False,
        connect_timeout=10.0,
        password_file="",
        python="",
        box_dir="",
    )
    return make_session(options)


async def _stop_all(session: Session) -> None:
    await session.connect()
    snapshot = await session.call("snapshot", {"paths": {}}, Snapshot)
    extract = snapshot.extract
    if extract is not None and extract.job is not None and extract.job.state is JobState.RUNNING:
        await session.call("extract.stop", {"job": extract.job.id}, StopReport, wait=STOP_SECONDS)
    if snapshot.server.job is not None and snapshot.server.job.state is JobState.RUNNING:
        await session.call("server.stop", {"job": snapshot.server.job.id}, StopReport, wait=STOP_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
