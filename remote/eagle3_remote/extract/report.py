"""What a person would write down of one extraction: ``main([RUN_DIR])`` prints one `ExtractReport` as a JSON line."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import sys
from collections.abc import Sequence

from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import history, training
from eagle3_remote.extract.__main__ import read_spec
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.extract.journal import Journal, open_readonly
from eagle3_remote.extract.manifest import server_launch
from eagle3_remote.protocol import ExtractReport, ExtractState, ExtractStatus, Problem, decode, encode

_SHOWN = 100


def build(run_dir: str) -> ExtractReport:
    """Put progress, manifest and journal together; what is not there yet is left empty.

    Raises:
        ExtractionError: the run directory has no usable spec.
    """
    spec = read_spec(run_dir)
    dataset = ds.Dataset(os.path.abspath(spec.out))
    try:
        with open(os.path.join(run_dir, "progress.json"), encoding="utf-8") as file:
            status = decode(ExtractStatus, json.load(file))
    except (OSError, ValueError) as error:
        status = ExtractStatus(ExtractState.PLANNING, f"No progress is written yet ({error}).", spec=spec)
    manifest = ds.read_manifest(dataset)
    argv, env = server_launch(run_dir)
    report = ExtractReport(status, dataset.root, manifest, server_argv=tuple(argv), server_env=env)
    try:
        journal = open_readonly(dataset.journal)
    except FileNotFoundError:
        return report
    try:
        return _with_journal(report, journal)
    except sqlite3.Error:
        return report
    finally:
        journal.close()


def _with_journal(report: ExtractReport, journal: Journal) -> ExtractReport:
    unit, counts = journal.get("unit") or "line", journal.counts()
    return dataclasses.replace(
        report,
        problems=tuple(
            Problem(f"{unit} {line}", f"{state}: {kind}", reason)
            for line, state, kind, reason in journal.problems(_SHOWN)
        ),
        problem_count=counts.rejected + counts.failed,
        runs=history.runs(journal),
        training=training.commands(report.manifest, report.dataset, counts.largest),
    )


def main(argv: Sequence[str]) -> int:
    """Print the report of RUN_DIR."""
    if len(argv) != 1:
        sys.stderr.write("Usage: main([RUN_DIR])\n")
        return 2
    try:
        report = build(argv[0])
    except ExtractionError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(encode(report)) + "\n")
    return 0
