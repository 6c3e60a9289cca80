"""How an extraction ends early, and the exit codes of the job."""

from __future__ import annotations

EXIT_GOOD = 0
"""Everything is stored, or the extraction was stopped on request and can be resumed."""
EXIT_NOT_FIT = 5
"""Input, box or dataset directory will not do."""
EXIT_SERVER = 6
"""The SGLang server is away or answers no more."""
EXIT_INCOMPLETE = 7
"""Ended with rejected or failed samples."""


class ExtractionError(Exception):
    """Ends the extraction. The text is a sentence for a person: what, where, why, what to do."""

    def __init__(self, sentence: str, exit_code: int = EXIT_NOT_FIT) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class SampleFailure(Exception):
    """One sample did not come back right. `kind` is one of `checks.EXPLANATIONS`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
