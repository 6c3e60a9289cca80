"""Lines are judged alike by the fast way (orjson, on the box) and by the slow one."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from tests.extract import jobs

CODE = f"""
import sys; sys.path[:0] = {jobs.PATHS!r}
from eagle3_remote.extract import input as one
assert one.orjson is not None
rules = one.Rules(1000, 50, "its context length is 56", 40)
fast = taken = 0
for number, raw in enumerate(open(sys.argv[1], "rb"), 1):
    line = one.Line(number, 0, len(raw), raw)
    orjson, by_both = one.orjson, one.parse(line, rules)
    fast += one._plain_record(raw) is not None
    taken += isinstance(by_both, one.Sample)
    one.orjson = None
    slow = one.parse(line, rules)
    one.orjson = orjson
    assert by_both == slow, (raw, by_both, slow)
print(fast, taken, number)
"""
ODD = [
    '{"input_ids": [1], "input_ids": [2]}',
    '{"input_ids": [1], "input\\u005fids": [2]}',
    '{"input_ids": [1], "meta": {"a": 1, "a": 2}}',
    '{"input_ids": [1], "id": "a", "id": "b"}',
    '{"input_ids": [1], "id": "say \\"hi\\""}',
    '{"input_ids": [1], "messages": [{"role": "user"}]}',
    '{"input_ids": [1e3]}',
    '{"input_ids": [1.0]}',
    '{"input_ids": [18446744073709551616]}',
    '{"input_ids": [NaN]}',
    '{"input_ids": [true], "loss_mask": [false]}',
    '{"input_ids": ["1"]}',
    '{"input_ids": [1,]}',
    "\ufeff" + '{"input_ids": [1]}',
    '{"input_ids": [1]} {"input_ids": [2]}',
    '{"input_ids": [1]}\x00',
    '{"input_ids": [1], "id": "\x00"}',
    "[1]",
    "null",
    "\ud7ff",
    "",
]


def test_the_fast_way_judges_as_the_slow_one(tmp_path: Path, python: Path) -> None:
    rng = random.Random(7)
    lines = [text.encode() + end for text in ODD for end in (b"\n", b"\r\n", b" \n")]
    whole = json.dumps({"input_ids": list(range(20)), "loss_mask": [0, 1] * 10, "id": "n1"}).encode()
    lines.append(whole + b"\n")
    for _ in range(3000):  # one or two bytes of a good line changed
        broken = bytearray(whole)
        for _ in range(rng.randint(1, 2)):
            broken[rng.randrange(len(broken))] = rng.choice(b'0123456789[]{}",: \\-.eE\xff\x00')
        lines.append(bytes(broken) + b"\n")
    (tmp_path / "lines").write_bytes(b"".join(lines))
    done = subprocess.run(
        [str(python), "-c", CODE, str(tmp_path / "lines")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    fast, taken, number = map(int, done.stdout.split())
    assert 0 < taken <= fast < number
