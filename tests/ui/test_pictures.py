"""The pictures of the README are what the screen shows of the recording that comes along."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.pictures.make import HERE, SHOTS, shoot


@pytest.mark.parametrize("name", SHOTS)
async def test_a_picture_shows_the_screen_of_today(name: str) -> None:
    assert (HERE / f"{name}.svg").read_text() == await shoot(name), "make pictures, and look at them"


def test_every_picture_is_shown_and_there() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert sorted(shown) == sorted(f"tests/pictures/{path.name}" for path in HERE.glob("*.svg"))
    assert len(shown) == len(SHOTS)
