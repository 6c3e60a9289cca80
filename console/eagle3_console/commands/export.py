"""Datasets for other trainers: export and vocab-map."""

from __future__ import annotations

import argparse

from eagle3_console.commands.context import open_flow, print_stop
from eagle3_console.commands.space import finished, follow
from eagle3_console.exit_codes import ExitCode
from eagle3_console.headless import print_json, print_text
from eagle3_remote.protocol import ExportSpec, JobStatus, StopReport, VocabMapReport, VocabMapSpec

_COUNTING = 3600.0


async def export(args: argparse.Namespace) -> int:
    """Rewrite a dataset for another trainer, as a detached job that is followed to its end."""
    async with open_flow(args) as flow:
        spec = ExportSpec(
            dataset=args.out,
            format=args.format,
            to=args.to,
            final=args.final,
            dtype=args.dtype,
            model=args.target_model,
            python=args.python,
        )
        if args.stop:
            stopped = await flow.change("export.stop", spec, StopReport, wait=120)
            return print_stop(stopped, args, ExitCode.BOX_NOT_FIT)
        job = await flow.change("export", spec, JobStatus)
        if args.no_wait:
            if args.json:
                print_json(job)
            else:
                print_text(f"{job.id}: started; it goes on without this console. The same command shows how far it is.")
            return ExitCode.GOOD
        return finished(await follow(flow, job.id), args)


async def vocab_map(args: argparse.Namespace) -> int:
    """Count tokens and choose a drafter's vocabulary."""
    async with open_flow(args) as flow:
        spec = VocabMapSpec(args.out, args.to, args.draft_vocab, args.target_model, args.python)
        report = await flow.change("vocab-map", spec, VocabMapReport, wait=_COUNTING)
        if args.json:
            print_json(report)
        else:
            print_text(vocab_text(report))
        return ExitCode.GOOD


def vocab_text(report: VocabMapReport) -> str:
    """What was counted and written."""
    text = f"{report.tokens:,} tokens with loss in {report.samples:,} samples, {report.distinct:,} different ones of {report.vocab_size:,}."
    if report.draft_vocab < report.vocab_size:
        text += f" A draft vocabulary of {report.draft_vocab:,} holds {report.covered:.2%} of them."
    return "\n".join([text, *report.files])


COMMANDS = {
    "export": export,
    "vocab-map": vocab_map,
}
