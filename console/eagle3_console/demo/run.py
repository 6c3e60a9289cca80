"""The demo: the whole job on this machine, over real SSH to the embedded box, with a real SGLang on the CPU."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from eagle3_console import report
from eagle3_console.cli import build_parser
from eagle3_console.commands.context import make_session
from eagle3_console.demo import guardian
from eagle3_console.demo.box import EmbeddedBox, embedded_box
from eagle3_console.demo.testbed import install
from eagle3_console.errors import BoxNotFit, UsageError
from eagle3_console.exit_codes import ExitCode
from eagle3_console.flow import Flow, RunResult
from eagle3_console.headless import Narrator, print_json, print_text
from eagle3_console.plan import Plan
from eagle3_console.recording.recorder import Recorder, recording
from eagle3_console.session import Session

_VOCAB = 1024


async def demo(args: argparse.Namespace) -> int:
    """Set up the test bed, open the embedded box, do the main job, and leave only what ``--keep`` asks for.

    Raises:
        BoxNotFit: SGLang cannot run on this machine.
        UsageError: no such test bed, or ``--keep`` names something that is not an empty or absent directory.
    """
    narrate = Narrator(quiet=args.quiet)
    if args.sglang and args.sglang not in install.VERSIONS:
        raise UsageError(f"There is no test bed for SGLang {args.sglang}: choose one of {', '.join(install.VERSIONS)}.")
    bed = await _test_bed(args.sglang or install.VERSIONS[-1], narrate)
    if args.prepare:
        return ExitCode.GOOD
    kept = _kept_dir(args.keep)
    note = f"the demo: real SGLang {bed.version} on a CPU with a tiny random {args.arch} model"
    with recording(args, "demo", note) as recorder:
        return await _run(bed, kept, args, narrate, recorder)


async def _run(
    bed: install.TestBed, kept: Path | None, args: argparse.Namespace, narrate: Narrator, recorder: Recorder | None
) -> int:
    async with _scratch(bed) as scratch, embedded_box(scratch, bed.env) as box:
        keep = kept or scratch / "kept"
        keep.mkdir(parents=True, exist_ok=True)
        narrate.line(f"making a tiny {args.arch} model and {args.samples} samples in {keep}")
        await _make_inputs(bed, args, keep)
        plan = Plan(
            model=str(keep / "model"),
            data=str(keep / "tokenized_data.jsonl"),
            out=str(keep / "dataset"),
            python=str(bed.python),
            port=_free_port(),
            server_args=(*bed.server_args, "--dtype", args.dtype),
        )
        session = _session(box)
        try:
            if args.headless:
                emit = recorder.tee(narrate) if recorder is not None else narrate
                flow = Flow(session, plan, emit, log="tail" if recorder is not None else "none")
                return await _headless(flow, args, keep)
            from eagle3_console.screen import open_screen

            return await open_screen(session, plan, demo=lambda result: _write_report(keep, result), recorder=recorder)
        finally:
            await session.drop()
            narrate.line("stopping what the demo started")


async def _headless(flow: Flow, args: argparse.Namespace, keep: Path) -> int:
    await flow.watcher.connect()
    result = await flow.run()
    _write_report(keep, result)
    if args.json:
        print_json(report.run_json(result))
    else:
        print_text(report.run_markdown(result, "HOST"))
    return result.exit_code


def _write_report(keep: Path, result: RunResult) -> None:
    (keep / "report.json").write_text(json.dumps(report.run_json(result), indent=2) + "\n", encoding="utf-8")


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


@contextlib.asynccontextmanager
async def _scratch(bed: install.TestBed) -> AsyncIterator[Path]:
    """A directory for the embedded box; at the end, and also when this process is killed, a guardian ends what runs there."""
    path = Path(tempfile.mkdtemp(prefix="eagle3-demo-"))
    watcher = await asyncio.create_subprocess_exec(
        sys.executable,
        guardian.__file__,
        str(path),
        str(bed.python),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # ctrl-C at the terminal must not reach it
    )
    try:
        yield path
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        await asyncio.shield(watcher.wait())


async def _make_inputs(bed: install.TestBed, args: argparse.Namespace, keep: Path) -> None:
    model = ["make_model.py", args.arch, str(keep / "model"), "--dtype", args.dtype]
    data = ["make_data.py", str(keep / "tokenized_data.jsonl"), "--samples", str(args.samples), "--vocab", str(_VOCAB)]
    for script, *words in (model, data):
        argv = [str(bed.python), str(install.HERE / script), *words]
        made = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True)
        if made.returncode != 0:
            raise BoxNotFit(f"{script} failed in {bed.python}: {made.stderr.strip()[-500:]}")


def _session(box: EmbeddedBox) -> Session:
    login = ["-F", "none", "-i", str(box.identity_file), "--known-hosts", str(box.known_hosts)]
    return make_session(build_parser()[0].parse_args(["open", box.address, *login]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
