"""Where profiles lie: ours in the package, the person's own under ``$XDG_CONFIG_HOME/eagle3-console/profiles``."""

from __future__ import annotations

import dataclasses
import difflib
import os
from pathlib import Path

from eagle3_console.errors import UsageError
from eagle3_console.profiles.profile import Profile, ProfileError, Reference, read

BUILT_IN = Path(__file__).parent / "builtin"


@dataclasses.dataclass(frozen=True)
class Place:
    """One profile's file."""

    name: str
    path: Path
    built_in: bool
    hidden: bool = False
    """A profile of the person's own has this name, and is taken instead."""


def own_folder() -> Path:
    """Where the person's own profiles lie."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "eagle3-console" / "profiles"


def places() -> list[Place]:
    """Every profile there is by name: the person's own first."""
    own = sorted(own_folder().glob("*.toml"))
    names = {path.stem for path in own}
    built_in = [Place(path.stem, path, True, path.stem in names) for path in sorted(BUILT_IN.glob("*.toml"))]
    return [*(Place(path.stem, path, False) for path in own), *built_in]


def find(word: str) -> Place:
    """The profile that a person names, by its name or as a file.

    Raises:
        UsageError: there is none.
    """
    if os.sep in word or word.endswith(".toml"):
        path = Path(os.path.expanduser(word))
        if not path.is_file():
            raise UsageError(
                f"There is no profile file {path}. 'eagle3-console profile list' shows the profiles by name."
            )
        return Place(path.stem, path, False)
    known = [place for place in places() if not place.hidden]
    for place in known:
        if place.name == word:
            return place
    names = [place.name for place in known]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    offered = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
    raise UsageError(f"There is no profile {word}, neither built in nor in {own_folder()}; {offered}")


def load(word: str) -> Profile:
    """Read the profile that a person names.

    Raises:
        UsageError: there is none, or it has mistakes; all of them are in the text.
    """
    place = find(word)
    try:
        return read(place.path)
    except ProfileError as error:
        raise UsageError(f"The profile {word} cannot be used:\n{error}") from None


def own(word: str) -> str:
    """The name of the person's own profile that `word` names; empty: it names a file, a built-in one, or none."""
    return word if any(place.name == word and not place.built_in for place in places()) else ""


def references(model: str) -> list[Reference]:
    """What the profiles report of a model, found by its directory's name; profiles with mistakes are passed over."""
    found: list[Reference] = []
    for place in _of_model(model):
        try:
            found += read(place.path).references
        except ProfileError:
            continue
    return found


def nearest(model: str) -> Profile | None:
    """The built-in profile of a model, found by its directory's name."""
    place = next((place for place in _of_model(model) if place.built_in), None)
    return None if place is None else read(place.path)


def _of_model(model: str) -> list[Place]:
    served = _bare(os.path.basename(model.rstrip("/")))
    return [place for place in places() if not place.hidden and _bare(place.name) in served]


def _bare(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())
