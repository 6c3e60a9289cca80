"""The recording that comes with the package: a real run of the demo, so that anyone sees the console in ten seconds.

It is what this command wrote (real SGLang on a CPU, a tiny model with random weights), packed; make it anew likewise,
from any run, when the screen shows more than it holds:

    eagle3-console demo --headless --samples 64 --record demo.ndjson && gzip -9n demo.ndjson
"""

from __future__ import annotations

from pathlib import Path

SPEED = 10.0
"""How many times as fast it plays where nobody says otherwise: loading and extracting took minutes."""
PATH = Path(__file__).with_name("demo.ndjson.gz")
