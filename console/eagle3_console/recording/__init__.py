"""Sessions kept in a file and shown again: `recorder` writes while a session goes on, `reader` and `player` read.

The file is NDJSON. Its first line is an object that names the format; each other line is ``[seconds, kind, data]``,
seconds since the recording began, never going back. `kind` is the name of an event's class (`eagle3_console.events`), or:

* ``Checkpoint``: the whole state at that moment, about once a minute, so that a reader can begin there;
* ``End``: the session was left. A file without it was cut, or is still being written.
"""
