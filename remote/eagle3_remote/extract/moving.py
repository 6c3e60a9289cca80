"""Closing the holes that failed samples leave among the rows: which files move, and which have moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eagle3_remote.extract.journalfile import JournalFile
from eagle3_remote.extract.records import ENTRY, Entry, entry_of

_MOVES = 1000


class Moving(JournalFile):
    """The journal as the end of an extraction uses it."""

    def unstored_rows(self) -> Iterator[int]:
        """Rows of valid samples without a stored file."""
        for (row,) in self._db.execute("SELECT row FROM samples WHERE row IS NOT NULL AND state != 'stored'"):
            yield row

    def plan_moves(self) -> None:
        """Give every stored sample that is not in its place that place, without holes, and take the row from failed ones."""
        with self._writing(durable=True) as db:
            db.execute("UPDATE samples SET row = NULL WHERE state = 'failed'")
            db.execute("DROP TABLE IF EXISTS temp.places")
            db.execute(
                "CREATE TEMP TABLE places AS SELECT place, line FROM (SELECT line, row,"
                " row_number() OVER (ORDER BY row) - 1 AS place FROM samples WHERE state = 'stored')"
                " WHERE place != row ORDER BY place"
            )
        for _, chunk in self._chunks("places"):
            with self._writing(durable=True) as db:
                db.executemany("UPDATE samples SET target = ? WHERE line = ?", chunk)

    def moves(self) -> list[tuple[Entry, int]]:
        """The next stored samples whose file moves (or has moved) to another row, ascending, each with that row."""
        found = self._ask(
            f"SELECT {ENTRY}, target FROM samples WHERE target IS NOT NULL ORDER BY row LIMIT ?", (_MOVES,)
        )
        return [(entry_of(row[:-1]), row[-1]) for row in found]

    def moved(self, lines: Iterable[int]) -> None:
        """The files of these samples lie at their planned rows."""
        with self._writing() as db:
            db.executemany(
                "UPDATE samples SET row = target, target = NULL WHERE line = ? AND target IS NOT NULL",
                [(line,) for line in lines],
            )
