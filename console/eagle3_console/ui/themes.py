"""Our own themes, beside Textual's: dark, light, and one whose good and bad differ for every kind of colour vision."""

from __future__ import annotations

from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    name="eagle-dark",
    primary="#4f9cd8",
    secondary="#3a6f9a",
    accent="#62b6f0",
    success="#58c27d",
    warning="#e8b84a",
    error="#f0616d",
    foreground="#dfe5ea",
    background="#11161b",
    surface="#182028",
    panel="#212b35",
)
LIGHT = Theme(
    name="eagle-light",
    primary="#1f6fb2",
    secondary="#5b8fb8",
    accent="#14609f",
    success="#1c7a3e",
    warning="#8a5a00",
    error="#b3202e",
    foreground="#1b2329",
    background="#f7f9fa",
    surface="#edf1f3",
    panel="#dfe6ea",
    dark=False,
)
# Blue against orange is told apart by people who see no red, no green or no blue (Okabe and Ito's colours, lightened for a
# dark ground); between warning and error lies lightness, and a word.
SAFE = Theme(
    name="eagle-blue-orange",
    primary="#56b4e9",
    secondary="#2f7fb8",
    accent="#9cd3f5",
    success="#56b4e9",
    warning="#f5e27a",
    error="#ff8a1e",
    foreground="#e6e9ec",
    background="#101418",
    surface="#182026",
    panel="#222c34",
)
OWN = (DARK, LIGHT, SAFE)
DEFAULT = DARK.name
NAMES = (*(theme.name for theme in OWN), *sorted(BUILTIN_THEMES))
SAYS = {
    DARK.name: "dark, the default",
    LIGHT.name: "light",
    SAFE.name: "dark; blue is good and orange is bad, for colour-blind eyes",
}
