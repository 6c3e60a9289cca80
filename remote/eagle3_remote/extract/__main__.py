"""The extraction: ``python -m eagle3_remote.extract RUN_DIR`` as the console starts it, or with options (``--help``) by hand.

RUN_DIR/spec.json says what is wanted; by hand the options do, and the dataset's hidden folder is the run directory. The rest is the
same program: it extracts, writes a line to standard output every ten seconds, at once, and keeps RUN_DIR/progress.json. A person's
wishes come as signals (TERM or INT: finish what is in flight and stop) and in RUN_DIR/control.json (see `control`).

Exit codes: 0 everything is stored, or stopped on SIGTERM (state ``stopped``); 7 ended with rejected or failed samples; 5 input, box or
dataset directory will not do; 6 the server is away.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import sys
import traceback
from collections.abc import Sequence

from eagle3_remote.extract import byhand
from eagle3_remote.extract.errors import EXIT_NOT_FIT, ExtractionError
from eagle3_remote.extract.policy import ENV_TUNING, Tuning, tuning_of
from eagle3_remote.extract.progress import Reporter, say
from eagle3_remote.protocol import ExtractSpec, ExtractState, decode

NEEDED = ("httpx", "numpy", "pyarrow")


def read_spec(run_dir: str) -> ExtractSpec:
    """The extraction's spec from RUN_DIR/spec.json.

    Raises:
        ExtractionError: it is missing or broken.
    """
    path = os.path.join(run_dir, "spec.json")
    try:
        with open(path, encoding="utf-8") as file:
            return decode(ExtractSpec, json.load(file)["message"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExtractionError(f"{path} cannot be used: {error!r}.") from None


def check_packages() -> None:
    """Refuse a Python that could not bring the extraction to its end.

    Raises:
        ExtractionError: naming what is missing and how to install it.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise ExtractionError(
            f"{sys.executable} lacks {', '.join(missing)}: install with {sys.executable} -m pip install {names}."
        )


def main(argv: Sequence[str], tuning: Tuning | None = None) -> int:
    """Run one extraction; returns the exit code. `tuning` is another patience than a real server deserves."""
    try:
        by_run_dir = len(argv) == 1 and not argv[0].startswith("-")
        run_dir, spec = (argv[0], read_spec(argv[0])) if by_run_dir else byhand.read(argv)
    except ExtractionError as error:
        say(str(error))
        return error.exit_code
    except OSError as error:
        say(f"The output directory cannot be written: {error}. What is stored stays; start it again when it can.")
        return EXIT_NOT_FIT
    reporter = Reporter(run_dir, spec)
    try:
        check_packages()
        from eagle3_remote.extract.run import extract

        return extract(run_dir, spec, reporter, tuning or tuning_of(os.environ.get(ENV_TUNING, "")))
    except ExtractionError as error:
        reporter.enter(ExtractState.FAILED, str(error))
        return error.exit_code
    except sqlite3.DatabaseError as error:
        say(traceback.format_exc())
        what = "cannot be used" if isinstance(error, sqlite3.OperationalError) else "is damaged"
        reporter.enter(
            ExtractState.FAILED,
            f"The journal of {spec.out} {what}: {error}. What is stored stays. Put back a copy of .eagle3/journal.sqlite3 there, or "
            "choose another --out.",
        )
        return EXIT_NOT_FIT
    except OSError as error:
        say(traceback.format_exc())
        text = f"{spec.out} cannot be written: {error}. What is stored stays; start the extraction again when it can."
        reporter.enter(ExtractState.FAILED, text)
        return EXIT_NOT_FIT
    except Exception as error:
        say(traceback.format_exc())
        reporter.enter(
            ExtractState.FAILED, f"The extraction broke: {error!r}. Its log has the details; what is stored stays."
        )
        return EXIT_NOT_FIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
