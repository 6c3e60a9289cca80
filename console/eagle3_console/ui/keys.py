"""Every key, once: the footer, the help screen and the bindings are made from this table. Ids are for a user's own keymap."""

from __future__ import annotations

import dataclasses

from textual.binding import Binding, BindingType


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: what it is called in the footer, and what the help says of it."""

    id: str
    keys: str
    shown: str
    action: str
    label: str
    help: str
    footer: bool = False

    def binding(self) -> BindingType:
        """As Textual wants it."""
        return Binding(self.keys, self.action, self.label, show=self.footer, key_display=self.shown, id=self.id)


KEYS = (
    Key("deploy", "d", "d", "deploy", "deploy", "put the release on the box (nothing is sent if it is there)", True),
    Key("server.start", "s", "s", "server_start", "start", "start the server with the patch", True),
    Key("server.restart", "R", "R", "server_restart", "restart", "restart the server with the radix cache off", True),
    Key("probe", "t", "t", "probe", "probe", "send one test request and check its rows", True),
    Key("extract.start", "e", "e", "extract_start", "extract", "start or resume the extraction", True),
    Key("stop", "x", "x", "stop", "stop", "stop the extraction or the server (asks which)", True),
    Key("take.over", "T", "T", "take_over", "take over", "steer this box though another console does (asks)", True),
    Key("reconnect", "r", "r", "reconnect", "reconnect", "reconnect now, without waiting for the next try", True),
    Key("log.search", "slash", "/", "search", "search", "search the log; n next match, N previous", True),
    Key("log.next", "n", "n", "match(1)", "next", "next match in the log"),
    Key("log.previous", "N", "N", "match(-1)", "previous", "previous match in the log"),
    Key("log.follow", "f", "f", "follow", "follow", "follow the end of the log, or stand still"),
    Key("log.top", "g,home", "g", "log_top", "top", "oldest line of the log"),
    Key("log.end", "G,end", "G", "log_end", "end", "newest line of the log, and follow"),
    Key("log.level", "l", "l", "log_level", "level", "of the log all lines, warnings and errors, or errors alone"),
    Key("log.rank", "p", "p", "log_rank", "rank", "of the log all ranks, or each one alone in turn"),
    Key("log.cause", "c", "c", "log_cause", "cause", "to the line of the log that names why the server failed"),
    Key("log.save", "w", "w", "log_save", "save", "write the lines of the log that are shown into a file here"),
    Key("copy", "y", "y", "copy", "copy", "copy what is selected, else the match, else the visible log"),
    Key("focus.1", "1", "1", "panel(1)", "server", "go to panel 1: server"),
    Key("focus.2", "2", "2", "panel(2)", "extraction", "go to panel 2: extraction"),
    Key("focus.3", "3", "3", "panel(3)", "box", "go to panel 3: box"),
    Key("focus.4", "4", "4", "panel(4)", "log", "go to panel 4: log"),
    Key("focus.5", "5", "5", "panel(5)", "events", "go to panel 5: events"),
    Key("zoom", "z", "z", "zoom", "zoom", "one panel in full, and back"),
    Key("back", "escape", "esc", "back", "back", "leave the search, then the filter, then the zoom"),
    Key("help", "question_mark", "?", "help", "help", "this list", True),
    Key("detach", "q", "q", "detach", "detach", "leave; everything on the box goes on", True),
)

ACTS = ("deploy", "server_start", "server_restart", "probe", "extract_start", "stop")
"""Actions that change something on the box."""
