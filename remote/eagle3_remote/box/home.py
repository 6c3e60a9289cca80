"""Where everything of ours lies on the box."""

from __future__ import annotations

import os
from pathlib import Path


def box_home() -> Path:
    """The box folder: ``$EAGLE3_HOME``, else ``~/.eagle3-console``."""
    return Path(os.path.abspath(os.path.expanduser(os.environ.get("EAGLE3_HOME") or "~/.eagle3-console")))
