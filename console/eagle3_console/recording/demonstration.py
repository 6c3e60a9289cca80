"""The recording that comes with the package: a real run on one H200, so that anyone sees the console in ten seconds.

It is what this command wrote on that machine, packed; only the header's name of the box and its note were written by hand.
The model is DeepSeek-V2-Lite's config.json with random weights, the lengths are log-normal as in conversations (median 1267),
and one sample is bad on purpose. Make it anew likewise, from any run, when the screen shows more than it holds:

    eagle3-console run local --model /data/models/deepseek-v2-lite --data /data/tokenized_data.jsonl \\
        --out /data/hidden_states --max-seq-len 4096 --server-arg=--load-format --server-arg=dummy \\
        --server-arg=--skip-tokenizer-init --server-arg=--attention-backend --server-arg=triton --record demo.ndjson
    gzip -9n demo.ndjson
"""

from __future__ import annotations

from pathlib import Path

SPEED = 10.0
"""How many times as fast it plays where nobody says otherwise: loading and extracting took minutes."""
PATH = Path(__file__).with_name("demo.ndjson.gz")
