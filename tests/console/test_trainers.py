"""What the report says of trainers."""

from __future__ import annotations

from typing import Any

import pytest

from eagle3_console.cli import build_parser
from eagle3_console.trainers import trainer_lines


def cells(boundaries: list[int], final: str) -> dict[str, tuple[str, str]]:
    """Trainer -> (what it reads, its layer ids)."""
    manifest: dict[str, Any] = {"boundaries": boundaries, "final": final, "num_layers": 61}
    rows = [line.strip("| ").split(" | ") for line in trainer_lines(manifest, "/data/my hs") if line.startswith("| ")]
    return {row[0]: (row[1], row[2] if len(row) > 2 else "") for row in rows[1:]}


def test_layer_ids_are_as_each_trainer_counts_them() -> None:
    """The hand-made run on 61 layers: boundaries 3, 31, 59."""
    told = {name: ids for name, (_, ids) in cells([3, 31, 59], "pre").items()}
    assert told == {
        "speculators 0.5 and newer": "--target-layer-ids 3 31 59",
        "speculators 0.3, 0.4; to 0.7 with --legacy-data": "layer_ids 2 30 58",
        "SpecForge 0.2": "aux_hidden_state_layer_ids 2 30 58",
        "NVIDIA ModelOpt": "eagle_aux_hidden_state_layer_ids 2 30 58",
        "scripts that read aux_0.pt ... final.pt": "boundaries 3 31 59",
    }


def test_what_cannot_be_is_said() -> None:
    post = cells([3, 31, 59], "post")
    assert post["speculators 0.5 and newer"][0] == "cannot be: extract again with --final pre"
    assert "--format specforge" in post["SpecForge 0.2"][0]
    assert cells([0, 31, 59], "pre")["NVIDIA ModelOpt"] == ("cannot be: no id for boundary 0", "")
    assert cells([3, 59], "pre")["SpecForge 0.2"][0] == "cannot be: needs exactly 3 boundaries"


@pytest.mark.parametrize("name", list(cells([2, 30, 58], "pre")))
def test_every_command_it_shows_parses(name: str) -> None:
    import shlex

    reads, _ = cells([2, 30, 58], "pre")[name]
    if "`" in reads:
        words = shlex.split(reads.strip("`"))
        assert build_parser()[0].parse_args(words[1:]).out == "/data/my hs"
