"""What 'jobs clean' says."""

from __future__ import annotations

import dataclasses

from eagle3_console.commands.jobs import clean_text
from eagle3_remote.protocol import CleanReport


def test_a_cleaning_that_failed_does_not_say_that_there_was_nothing_to_remove() -> None:
    report = CleanReport(gone=True, jobs=(), kept=(), releases=(), bytes=0, problems=("x cannot be removed: why.",))
    assert clean_text(report) == "x cannot be removed: why."
    assert "nothing to remove" in clean_text(dataclasses.replace(report, problems=()))
