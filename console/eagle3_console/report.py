"""The report of a run: JSON for machines, Markdown for people. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex
import time
from typing import Any

from eagle3_console import __version__, units
from eagle3_console.flow import RunResult
from eagle3_console.trainers import trainer_lines
from eagle3_remote import protocol
from eagle3_remote.protocol import (
    ExtractReport,
    ExtractState,
    LaunchPlan,
    Problem,
    RunRecord,
    Training,
    VerifyReport,
)

_HOST = re.compile(r"(eagle3-console [a-z-]+ )HOST\b")
_MARKS = re.compile(r"[\\`*\[\]<>|]|(?<!\w)_|_(?!\w)")


def run_json(result: RunResult) -> dict[str, Any]:
    """Everything a script may want of a finished run. It is kept and handed on: no secret of the server's environment."""
    server = result.server
    if server.spec is not None:
        shown = {name: result.report.server_env.get(name, "(left out)") for name in server.spec.env}
        server = dataclasses.replace(server, spec=dataclasses.replace(server.spec, env=shown))
    return {
        "ok": result.exit_code == 0,
        "exit_code": int(result.exit_code),
        "console_version": __version__,
        "host": result.facts.host,
        "server": protocol.encode(server),
        "probe": protocol.encode(result.probe),
        "extract": protocol.encode(result.extract),
        "verify": protocol.encode(result.verify),
        "report": protocol.encode(result.report),
    }


def run_markdown(result: RunResult, host: str) -> str:
    """The same for a person; `host`: what stands for it in the commands, as a shell reads it."""
    return "\n".join([markdown(result.report, host), "", *_verify_lines(result.verify)])


def markdown(report: ExtractReport, host: str) -> str:
    """One extraction: counts, sizes, rates, the launch line and what comes next."""
    return _HOST.sub(lambda found: found.group(1) + host, _markdown(report))


def _markdown(report: ExtractReport) -> str:
    status = report.status
    manifest = report.manifest
    lines = [f"# Hidden states in {_text(report.dataset)}", "", _text(status.sentence), ""]
    if status.verified is not None and status.verified.faults:
        lines += [
            f"**Not to be trained on yet: its last check found {status.verified.faults:,} faults.** The same 'extract start' "
            "command makes missing and damaged files again; `eagle3-console verify HOST` lists the faults and checks anew.",
            "",
        ]
    lines += [
        f"| samples | {status.stored:,} stored, {status.rejected:,} rejected, {status.failed:,} failed, of {status.total:,} |",
        "|---|---|",
        f"| tokens | {status.tokens_stored:,} |",
        f"| size | {units.gb_and_gib(status.bytes_stored)} |",
        f"| time | {_time(report)} |",
    ]
    if status.cut:
        lines.append(f"| cut | {status.cut:,} samples at the longest length asked |")
    lines += [f"| {name} | {_text(value)} |" for name, value in _made_of(manifest) if value]
    if status.verified is not None:
        found, when = status.verified, time.strftime("%Y-%m-%d %H:%M", time.gmtime(status.verified.at))
        lines.append(f"| verified | {when} UTC: {found.samples:,} samples, {found.faults:,} faults |")
    elif status.state is ExtractState.FINISHED:
        lines.append("| verified | not since it was finished: `eagle3-console verify HOST` |")
    if report.problems:
        lines += [
            "",
            f"## Not in the dataset: {report.problem_count:,}",
            "",
            *_problem_lines(report.problems, report.problem_count),
        ]
    lines += _run_lines(report.runs)
    if report.server_argv:
        lines += ["", "## The server", "", "```", command_line(report.server_argv, report.server_env), "```"]
    lines += ["", "## Next", "", *_next_lines(report)]
    return "\n".join(lines)


def _time(report: ExtractReport) -> str:
    """All runs of the dataset together, or the one that is known."""
    status, runs = report.status, report.runs
    seconds = sum(run.seconds for run in runs)
    sending = sum(run.spent.get("extracting", 0.0) for run in runs)
    if not runs or sending <= 0:
        return f"{units.duration(status.elapsed)}, {status.mean_samples_per_s:.2f} samples/s in the mean"
    samples, tokens = sum(run.stored for run in runs), sum(run.tokens for run in runs)
    text = f"{units.duration(seconds)} in {len(runs):,} run{'s' if len(runs) > 1 else ''}"
    return f"{text}, {units.duration(sending)} of it extracting: {samples / sending:.2f} samples/s, {tokens / sending:,.0f} tokens/s in the mean"


def _run_lines(runs: tuple[RunRecord, ...]) -> list[str]:
    if not runs:
        return []
    lines = ["", "## Runs", "", "| began | ended | stored | tokens | time went to |", "|---|---|---|---|---|"]
    for run in runs:
        began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.began_at)) + " UTC"
        spent = ", ".join(f"{name} {units.duration(seconds)}" for name, seconds in run.spent.items() if seconds >= 0.1)
        lines.append(f"| {began} | {run.state} | {run.stored:,} | {run.tokens:,} | {spent} |")
    return lines


def command_line(argv: tuple[str, ...], env: dict[str, str]) -> str:
    """A line that a shell takes as it is."""
    return shlex.join(["env", *(f"{key}={value}" for key, value in env.items()), *argv])


def launch_text(launch: LaunchPlan) -> str:
    """What would run, and why it has the flags it has."""
    notes = [f"# {note}" for note in launch.notes]
    return "\n".join([f"# SGLang {launch.sglang_version}", command_line(launch.argv, launch.env), *notes])


def _made_of(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person must know of the manifest to use the data."""
    if not manifest:
        return []
    model, server = manifest["model"], manifest["server"]
    boundaries = ", ".join(str(boundary) for boundary in manifest["boundaries"])
    return [
        ("model", f"{model['path']}, {model['architecture']}"),
        ("layers", f"boundaries {boundaries} of {manifest['num_layers']}, then the final state"),
        ("final state", f"{manifest['final']}: {manifest['final_means']}"),
        # The first sample tells the values' kind, and the server's log the patch.
        ("values", ", ".join([*filter(None, [manifest["dtype"]]), f"hidden size {manifest['hidden_size']}"])),
        ("SGLang", server["sglang_version"] + (f", patch {patch}" if (patch := server["patch_version"]) else "")),
    ]


def _verify_lines(verify: VerifyReport) -> list[str]:
    verdict = "every file is as the manifest says" if verify.ok else f"{verify.problem_count:,} faults"
    head = f"Verified {verify.samples:,} samples, {units.gb_and_gib(verify.bytes)} in {units.duration(verify.seconds)}: {verdict}."
    lines = ["## Check", "", head, *_problem_lines(verify.problems, verify.problem_count)]
    lines += [f"* live server, {probe.name}: {probe.result}: {probe.sentence}" for probe in verify.probes]
    lines += [f"* not checked: {text}" for text in verify.unchecked]
    if verify.not_kept:
        lines.append(f"The dataset does not remember this check: {_text(verify.not_kept)}.")
    if verify.to_remake:
        lines.append(f"The same 'extract start' command makes {_files(verify.to_remake)} again; verify once more then.")
    if verify.ok and not verify.complete:
        lines.append("It is not a whole dataset yet: finish it with the same 'extract start' command.")
    return lines


def verify_markdown(verify: VerifyReport) -> str:
    """A dataset's check on its own."""
    return "\n".join([f"# {verify.dataset}", "", *_verify_lines(verify)])


def _files(count: int) -> str:
    return "the missing or damaged file" if count == 1 else f"the {count:,} missing or damaged files"


def _text(text: str) -> str:
    """Text of others in a Markdown line: nothing in it is markup."""
    return _MARKS.sub(r"\\\g<0>", text)


def _problem_lines(problems: tuple[Problem, ...], count: int) -> list[str]:
    lines = [f"* {_text(f'{problem.where}: {problem.kind}: {problem.reason}')}" for problem in problems]
    if count > len(problems):
        lines.append(f"* … and {count - len(problems):,} more")
    return lines


def _next_lines(report: ExtractReport) -> list[str]:
    if report.status.state is not ExtractState.FINISHED:
        return ["* Resume with the same 'extract start' command: what is stored stays stored."]
    return [*trainer_lines(report.manifest, report.dataset), *_training_lines(report.training)]


def _training_lines(training: tuple[Training, ...]) -> list[str]:
    lines = []
    for one in training:
        lines += ["", f"### Training with {one.trainer}", ""]
        lines += ["```", one.command, "```", ""] if one.command else []
        lines += [f"* {note}" for note in one.notes]
    return lines
