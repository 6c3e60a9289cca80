"""The job: ``main([RUN_DIR])`` reads RUN_DIR/spec.json, exports, and keeps RUN_DIR/progress.json.

Exit codes: 0 everything is written, or stopped on SIGTERM; 5 source, target or request will not do.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from eagle3_remote.export.errors import Stopped
from eagle3_remote.export.run import Export
from eagle3_remote.extract.errors import EXIT_NOT_FIT, ExtractionError
from eagle3_remote.job.work import Progress, run_dir_of
from eagle3_remote.protocol import ExportSpec, WorkState, decode


def main(argv: Sequence[str]) -> int:
    """Run one export; returns the exit code."""
    run_dir, message = run_dir_of(list(argv))
    spec = decode(ExportSpec, message)
    progress = Progress(run_dir)
    try:
        work = Export(spec, progress)
        try:
            progress.end(WorkState.FINISHED, work.run())
        except Stopped:
            text = (
                f"Stopped: {work.done} of {work.samples} samples lie in {work.target.root}; the same command goes on."
            )
            progress.end(WorkState.STOPPED, text)
        return 0
    except (ExtractionError, OSError) as error:
        text = str(error) if isinstance(error, ExtractionError) else f"{spec.to} or {spec.dataset}: {error}."
        progress.end(WorkState.FAILED, text)
    except Exception as error:
        traceback.print_exc()
        progress.end(WorkState.FAILED, f"The export broke: {error!r}. Its log has the details; what is written stays.")
    return EXIT_NOT_FIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
