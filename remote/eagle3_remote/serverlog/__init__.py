"""What an SGLang server's log says, folded from its bytes by a pure function.

`feed` takes bytes in any pieces, `view` and `explain.note` say what they mean. Standard library alone.
"""

from __future__ import annotations

from eagle3_remote.serverlog.fold import MAX_LINE, feed
from eagle3_remote.serverlog.lines import clean
from eagle3_remote.serverlog.reading import local_seconds, verdict, view
from eagle3_remote.serverlog.state import LogState

__all__ = ["MAX_LINE", "LogState", "clean", "feed", "local_seconds", "verdict", "view"]
