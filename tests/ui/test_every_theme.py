"""Every panel and dialog says the same in every theme and without colour, at three sizes: colour is never the only sign.

In dark each is held by a picture (`test_snapshots`); here every cell's letter in the other themes is compared with it.
"""

from __future__ import annotations

import pytest

from eagle3_console.ui.themes import DEFAULT, OWN
from tests.ui.scenes import SCENES, console
from tests.ui.test_keys import text_of
from tests.ui.test_snapshots import DIALOGS, SIZES, named, when_still

CASES: dict[str, tuple[str, list[str]]] = {
    **{scene: (scene, []) for scene in SCENES},
    **{f"panel {number}": ("trouble" if number == 5 else "extracting", [str(number), "z"]) for number in range(1, 6)},
    **{f"dialog {name}": case for name, case in DIALOGS.items()},
}
"""Name -> the scene, and the keys that lead there."""


@pytest.mark.parametrize("size", SIZES, ids=named)
@pytest.mark.parametrize("case", CASES)
async def test_every_theme_says_the_same(case: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    scene, keys = CASES[case]
    app, controller = console(scene)
    async with app.run_test(size=size) as pilot:
        await when_still(controller, *keys)(pilot)
        assert app.theme == DEFAULT
        dark = text_of(app)
        for theme in OWN:
            app.theme = theme.name
            await pilot.pause(0.05)
            assert text_of(app) == dark, theme.name
    monkeypatch.setenv("NO_COLOR", "1")
    app, controller = console(scene)
    async with app.run_test(size=size) as pilot:
        await when_still(controller, *keys)(pilot)
        assert text_of(app) == dark, "without colour"
        assert app.no_color
