"""In bfloat16 the dump is what SGLang itself captures, bit for bit; and what the prefix cache leaves out is refused.

An observer of the tests' own (`recorder`), loaded into the same server, saves what the inner model returns to its caller.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from eagle3_remote.server.serverinfo import extra_key_works
from tests.patch.conftest import MakeModel
from tests.patch.servers import ROOT, Relay, Server, launch, members, modules_of, recorder, wait_for

CASES = {"0.5.9": ("deepseek", "pt", "post"), "0.5.23": ("deepseek", "safetensors", "pre")}

BUDGET = 400_000
"""Bytes: less than the concurrent requests take together, so that the forward has to wait for the writers."""

DUMP_BUDGET = 3_000_000
"""Bytes: room for what these tests leave lying, but for the one that fills it."""

ARGS = ("--skip-server-warmup",)
"""Without SGLang's own request at the start the first one of anybody is what the patch checks itself with."""


class Observed:
    """A server with the recorder in it."""

    def __init__(self, version: str, server: Server, records: Path) -> None:
        self.version, self.server, self.records = version, server, records
        self.arch, self.layout, self.final = CASES[version]


@pytest.fixture(scope="module")
def relay(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    root = tmp_path_factory.mktemp("bits")

    def start(version: str) -> Server:
        arch, kind, final = CASES[version]
        before, env = recorder(root / version / "records", RECORDER_FORWARDS="1")
        env |= {layout.ENV_LAYOUT: kind, layout.ENV_FINAL: final}
        env |= {layout.ENV_PINNED_BUDGET: str(BUDGET), layout.ENV_DUMP_BUDGET: str(DUMP_BUDGET)}
        return launch(
            install.ensure(version), make_model(arch, "bfloat16"), root / version, ARGS, before=before, env=env
        )

    servers = Relay(*(functools.partial(start, version) for version in CASES))
    yield servers
    servers.close()


@pytest.fixture(scope="module", params=CASES)
def observed(request: pytest.FixtureRequest, relay: Relay) -> Iterator[Observed]:
    with relay.use(list(CASES).index(request.param)) as server:
        yield Observed(request.param, server, server.log.parent / "records")


def prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, 1024) for _ in range(length)]


def test_the_first_request_of_anybody_is_checked_where_there_was_no_warm_up(observed: Observed) -> None:
    observed.server.generate("e3-first-0-0", prompt(1, 30))
    assert (observed.server.folder("e3-first-0-0") / layout.DONE_FILE).exists()
    (checked,) = observed.server.markers(layout.MARKER_CHECKED)
    assert checked["ranks"] == 1
    assert checked["norm_difference"] < 0.01


def test_the_dump_is_sglangs_own_capture_bit_for_bit(observed: Observed, tmp_path: Path) -> None:
    lengths = (4, 30, 60, 255, 256, 257, 300, 600, 90, 120, 77, 33, 513, 16, 200, 140)
    samples = {f"e3-bit-{n}-0": prompt(100 + n, length) for n, length in enumerate(lengths)}
    with ThreadPoolExecutor(len(samples)) as pool:
        list(pool.map(lambda item: observed.server.generate(*item), samples.items()))
    for rid in samples:
        folder = observed.server.folder(rid)
        assert (folder / layout.DONE_FILE).exists(), (folder / layout.ERROR_FILE).read_text()
        meta = json.loads((folder / layout.META_FILE).read_text())
        assert meta["boundaries"] == [2, 4, 5]
        assert (meta["dtype"], meta["final"], meta["layout"]) == ("bfloat16", observed.final, observed.layout)
    listed = tmp_path / "samples.json"
    listed.write_text(json.dumps(samples))
    bed = install.ensure(observed.version)
    script = ROOT / "tests" / "reference" / "same_bits.py"
    arguments = [listed, observed.server.dump_dir, observed.records, observed.final]
    command = [str(bed.python), str(script), *map(str, arguments)]
    done = subprocess.run(command, env=bed.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"requests": len(samples), "rows": sum(lengths), "different": []}


def reason(server: Server, rid: str) -> str:
    folder = server.folder(rid)
    error = json.loads((folder / layout.ERROR_FILE).read_text())
    assert error["rid"] == rid
    assert sorted(path.name for path in folder.iterdir()) == [layout.ERROR_FILE]
    text: str = error["reason"]
    return text


@pytest.mark.parametrize("length", [50, 400])
def test_a_prefix_hit_is_an_error_with_the_number_of_cached_tokens(observed: Observed, length: int) -> None:
    """The radix cache is on here: the second time the first rows never pass through the model."""
    ids = prompt(length, length)
    first = observed.server.generate(f"e3-hit-{length}-0", ids)
    second = observed.server.generate(f"e3-hit-{length}-1", ids)
    cached = second["meta_info"]["cached_tokens"]
    assert (first["meta_info"]["cached_tokens"], cached) == (0, length - 1)
    assert (observed.server.folder(f"e3-hit-{length}-0") / layout.DONE_FILE).exists()
    assert f"{cached} cached tokens" in reason(observed.server, f"e3-hit-{length}-1")


def test_a_request_that_the_budget_cannot_hold_is_an_error_and_the_next_is_fine(observed: Observed) -> None:
    """700 tokens of 4 states of 64 bfloat16, and their ids: 364 kB, and more in slabs of 4 KiB, the last one of each prefill in part empty."""
    observed.server.generate("e3-big-0-0", prompt(8, 700))
    assert f"{BUDGET} ({layout.ENV_PINNED_BUDGET})" in reason(observed.server, "e3-big-0-0")
    observed.server.generate("e3-next-0-0", prompt(9, 600))
    assert (observed.server.folder("e3-next-0-0") / layout.DONE_FILE).exists()


def test_a_full_dump_directory_holds_the_next_request_back_until_one_is_taken_away(observed: Observed) -> None:
    server = observed.server
    ids = prompt(10, 600)
    for number in range(20):
        server.generate(f"e3-fill-{number}-0", ids[number:])
        time.sleep(0.2)
        late = server.dump_dir / layout.folder_name(f"e3-fill-{number}-0")
        if not late.exists():
            break
    assert number > 0, "nothing of this test went in"
    assert not late.exists(), "the budget let everything in"
    shutil.rmtree(server.folder(f"e3-fill-{number - 1}-0"))
    wait_for((late / layout.DONE_FILE).exists, "the dump that waited")
    for folder in server.dump_dir.glob("req_e3-fill-*"):
        shutil.rmtree(folder)


def test_the_patch_is_where_it_should_be(observed: Observed) -> None:
    """What the tests of a server without the variable look for can be found."""
    assert any(any(name.startswith("eagle3_patch") for name in modules) for modules in modules_of(observed.server))
    assert len(members(observed.server.process.pid)) >= 3


def names(paths: Sequence[Path]) -> list[str]:
    return sorted(path.name for path in paths)


def test_the_folder_has_the_files_of_its_layout_and_no_more(observed: Observed) -> None:
    observed.server.generate("e3-files-0-0", prompt(7, 12))
    found = names(list(observed.server.folder("e3-files-0-0").iterdir()))
    states = {"pt": ["aux_0.pt", "aux_1.pt", "aux_2.pt", "final.pt"], "safetensors": [layout.STATES_FILE]}
    assert found == sorted([*states[observed.layout], layout.META_FILE, layout.DONE_FILE])


def test_an_extra_key_keeps_requests_apart_from_the_version_that_says_so(observed: Observed) -> None:
    """Older ones take the key without a word and use the cache all the same."""
    ids = prompt(11, 120)
    cached = [
        observed.server.generate(f"e3-key-{place}-0", ids, extra_key=f"e3-key-{place}-0")["meta_info"]["cached_tokens"]
        for place in range(3)
    ]
    hit = 0 if extra_key_works(observed.version) else len(ids) - 1
    assert cached == [0, hit, hit]
