"""``space`` and ``space reclaim`` as a person runs them."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import console
from tests.extract import made


def test_what_lies_there_is_shown_and_removed_by_name(tmp_path: Path) -> None:
    box, data = f"--box-dir={tmp_path / 'box'}", tmp_path / "data"
    made.write_dump(data / "dump" / "req_old-1", made.states_bytes([1, 2, 3]))
    shown = console("space", "local", data, box)
    assert shown.code == 0, shown.err
    assert f"{data}/dump\n    dumps, " in shown.out
    assert "1 requests, dumps of a server that was not started from here" in shown.out
    (found,) = console("space", "local", data, box, "--json").json["found"]
    assert (found["kind"], found["ours"], found["samples"]) == ("dumps", False, 1)

    without = console("space", "reclaim", "local", data / "dump", box)
    assert (without.code, without.out) == (2, "")
    assert "give the folder's own name with --confirm dump" in without.err
    wrong = console("space", "reclaim", "local", data / "dump", box, "--confirm=dumps")
    assert wrong.code == 5
    assert (data / "dump").exists()
    removed = console("space", "reclaim", "local", data / "dump", box, "--confirm=dump")
    assert removed.code == 0, removed.err
    assert f"Removed {data}/dump: 3 files." in removed.out
    assert not (data / "dump").exists()
