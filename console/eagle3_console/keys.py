"""Every key, once: the bindings, the footer, the help and the palette are made from this table. Ids are for the settings file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: what it does, and what the footer, the help and the palette call it."""

    id: str
    group: str
    """Under which it stands in the help and the palette."""
    keys: str
    """As Textual names them, with commas between."""
    shown: str
    """As a person knows them."""
    action: str
    label: str
    help: str
    footer: int = 0
    """0: not in the footer; 1: always; 2 and 3: where there is room, 2 first."""

    @property
    def act(self) -> str:
        """The act on the box that it stands for; empty: none."""
        return self.action.removeprefix("box('").removesuffix("')") if self.action.startswith("box(") else ""


KEYS = (
    Key("server.start", "server", "s", "s", "box('server_start')", "start", "start the server with the patch", 1),
    Key(
        "server.restart",
        "server",
        "R",
        "R",
        "box('server_restart')",
        "restart",
        "restart the server with the radix cache off",
        1,
    ),
    Key("probe", "server", "t", "t", "box('probe')", "probe", "send one test request and check its rows", 1),
    Key(
        "extract.start", "extraction", "e", "e", "box('extract_start')", "extract", "start or resume the extraction", 1
    ),
    Key(
        "extract.pause",
        "extraction",
        "p",
        "p",
        "box('pause')",
        "pause",
        "pause the extraction after what is in flight, or let it go on",
        1,
    ),
    Key("verify", "extraction", "v", "v", "box('verify')", "verify", "check every file of the dataset", 1),
    Key("report", "extraction", "m", "m", "box('report')", "report", "what was made, how, and what comes next", 3),
    Key("stop", "server", "x", "x", "box('stop')", "stop", "stop the extraction or the server (asks which)", 1),
    Key(
        "deploy",
        "box",
        "d",
        "d",
        "box('deploy')",
        "deploy",
        "put the release on the box (nothing is sent if it is there)",
        3,
    ),
    Key(
        "reconnect",
        "box",
        "r",
        "r",
        "box('reconnect')",
        "reconnect",
        "reconnect now, without waiting for the next try",
        1,
    ),
    Key(
        "take.over",
        "box",
        "T",
        "T",
        "box('take_over')",
        "take over",
        "steer this box though another console does (asks)",
        1,
    ),
    Key("focus.log", "log", "l", "l", "panel(4)", "log", "go to the log", 1),
    Key(
        "setup",
        "box",
        "o",
        "o",
        "box('setup')",
        "set-up",
        "choose model, data and output, see the plan, and save it as a profile of this host",
        1,
    ),
    Key(
        "run.all",
        "box",
        "E",
        "E",
        "box('run_all')",
        "everything",
        "all in one go: deploy, server, probe, extraction, check, report",
        2,
    ),
    Key("log.search", "log", "slash", "/", "search", "search", "search the log", 2),
    Key("log.filter", "log", "ampersand", "&", "log_filter", "filter", "only the lines of the log that match, or all"),
    Key("log.next", "log", "n", "n", "match(1)", "next", "next match in the log"),
    Key("log.previous", "log", "N", "N", "match(-1)", "previous", "previous match in the log"),
    Key("log.follow", "log", "f", "f", "follow", "follow", "follow the end of the log, or stand still", 3),
    Key("log.top", "log", "g,home", "g", "log_top", "top", "oldest line of the log"),
    Key("log.end", "log", "G,end", "G", "log_end", "end", "newest line of the log, and follow"),
    Key("log.left", "log", "left_parenthesis", "(", "log_side(-1)", "left", "half a screen to the left in long lines"),
    Key(
        "log.right",
        "log",
        "right_parenthesis",
        ")",
        "log_side(1)",
        "right",
        "half a screen to the right: a line that goes on ends with >",
    ),
    Key(
        "log.level", "log", "L", "L", "log_level", "level", "of the log all lines, warnings and errors, or errors alone"
    ),
    Key("log.rank", "log", "K", "K", "log_rank", "rank", "of the log all ranks, or each one alone in turn"),
    Key("log.phase", "log", "P", "P", "log_phase", "phase", "of the log all phases, or each one alone in turn"),
    Key("log.cause", "log", "c", "c", "log_cause", "cause", "to the line of the log that names why the server failed"),
    Key("log.save", "log", "w", "w", "log_save", "save", "write the lines of the log that are shown into a file here"),
    Key("copy", "screen", "y", "y", "copy", "copy", "copy what is selected, else the match, else the visible log"),
    Key("alerts", "screen", "a", "a", "alerts", "alerts", "every alert so far, in full", 2),
    Key("focus.1", "screen", "1", "1", "panel(1)", "server", "go to panel 1: server"),
    Key("focus.2", "screen", "2", "2", "panel(2)", "extraction", "go to panel 2: extraction"),
    Key("focus.3", "screen", "3", "3", "panel(3)", "box", "go to panel 3: box"),
    Key("focus.4", "screen", "4", "4", "panel(4)", "log", "go to panel 4: log"),
    Key("focus.5", "screen", "5", "5", "panel(5)", "events", "go to panel 5: events"),
    Key("zoom", "screen", "z", "z", "zoom", "zoom", "one panel in full, and back", 3),
    Key("back", "screen", "escape", "esc", "back", "back", "leave the search, then the filter, then the zoom"),
    Key(
        "screenshot",
        "screen",
        "ctrl+s",
        "^s",
        "screenshot_here",
        "screenshot",
        "save a picture of the screen (SVG) here",
    ),
    Key("help", "screen", "question_mark", "?", "help", "help", "this list", 1),
    Key("palette", "screen", "ctrl+p", "^p", "palette", "all", "everything by name", 1),
    Key("detach", "screen", "q", "q", "detach", "detach", "leave; everything on the box goes on", 1),
)
"""In the order of the footer."""

IDS = tuple(key.id for key in KEYS)
SHOWN: Mapping[str, str] = {key.id: key.shown for key in KEYS}
"""Id -> the key as a person knows it, where nobody has chosen another."""


def rebound(given: Mapping[str, str]) -> tuple[Key, ...]:
    """The table with a person's own keys, id -> keys as Textual names them, checked before (`eagle3_console.settings`)."""
    from eagle3_console.ui import keynames

    return tuple(
        dataclasses.replace(key, keys=given[key.id], shown=keynames.shown(given[key.id])) if key.id in given else key
        for key in KEYS
    )


def shown(given: Mapping[str, str]) -> Mapping[str, str]:
    """Id -> the key as this person knows it; `given` as for `rebound`."""
    return {key.id: key.shown for key in rebound(given)}
