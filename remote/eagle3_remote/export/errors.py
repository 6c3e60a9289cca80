"""How an export ends early."""

from __future__ import annotations

from eagle3_remote.extract.errors import ExtractionError


class ExportError(ExtractionError):
    """Ends the export. The text is a sentence for a person: what, where, why, what to do."""


class Stopped(Exception):
    """Somebody asked the export to end; what was written stays and the same command goes on."""
