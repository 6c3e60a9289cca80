"""Makes the pictures of the README from the recording that comes along: ``make pictures``.

Each is the screen at one moment of that real run, as SVG.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from eagle3_console.recording import demonstration
from eagle3_console.recording.player import Player
from eagle3_console.recording.reader import Recording
from eagle3_console.ui.replay import ReplayApp

HERE = Path(__file__).parent
SHOTS = {
    "extracting": (218.0, (120, 35)),
    "extracting-80x24": (218.0, (80, 24)),
    "finished": (600.0, (120, 35)),
}
"""Name -> seconds into the recording, columns and rows."""


async def shoot(name: str) -> str:
    """The SVG of one picture."""
    at, size = SHOTS[name]
    app = ReplayApp(Player(Recording(demonstration.PATH)), at=at, monotonic=lambda: 0.0, ascii_signs=False)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.6)  # the log is painted ten times a second at most, the plot twice
        return app.export_screenshot(title="eagle3-console", simplify=True)


def main() -> None:
    """Write them all beside this file."""
    for name in SHOTS:
        path = HERE / f"{name}.svg"
        path.write_text(asyncio.run(shoot(name)))
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
