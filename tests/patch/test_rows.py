"""Every row of every boundary from a real SGLang server against Hugging Face, in float32, under an unfriendly load."""

from __future__ import annotations

import functools
import json
import resource
import shutil
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eagle3_console.demo.testbed import install
from eagle3_patch import layout
from tests.patch import reference
from tests.patch.conftest import MakeModel
from tests.patch.reference import LAYERS
from tests.patch.servers import Relay, Server, command_line, launch, members, wait_for

CASES = [(version, arch) for version in install.VERSIONS for arch in ("llama", "deepseek")]
LENGTHS = (1, 5, 20, 63, 64, 65, 100, 128, 129, 150, 192, 200, 255, 256, 257, 300, 8, 33, 90, 17, 2, 64, 500, 40)


class Served:
    """One server, and what it was started from."""

    def __init__(self, version: str, arch: str, model: Path, server: Server) -> None:
        self.version, self.arch, self.model, self.server = version, arch, model, server


@pytest.fixture(scope="module")
def relay(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    root = tmp_path_factory.mktemp("rows")

    def start(version: str, arch: str) -> Server:
        args = list(reference.FLOAT32)
        env = {layout.ENV_BOUNDARIES: reference.EVERY_BOUNDARY, layout.ENV_FINAL: "post"}
        # what a batch may be made of differs by arch, so that both are tried on both versions
        if arch == "llama":
            args.append("--enable-mixed-chunk")
        else:
            env["SGLANG_TEST_RETRACT"] = "true"
        return launch(
            install.ensure(version), make_model(arch, "float32"), root / f"{version}-{arch}", args=args, env=env
        )

    servers = Relay(*(functools.partial(start, *case) for case in CASES))
    yield servers
    servers.close()


@pytest.fixture(scope="module", params=range(len(CASES)), ids=lambda index: "-".join(CASES[index]))
def served(request: pytest.FixtureRequest, relay: Relay, make_model: MakeModel) -> Iterator[Served]:
    version, arch = CASES[request.param]
    with relay.use(request.param) as server:
        yield Served(version, arch, make_model(arch, "float32"), server)


def folders(server: Server) -> set[str]:
    return {path.name for path in server.dump_dir.iterdir()}


def test_the_marker_names_what_runs(served: Served) -> None:
    (marker,) = served.server.markers()
    expected = {
        "sglang": served.version,
        "num_layers": LAYERS,
        "hidden_size": 64,
        "boundaries": list(range(LAYERS + 1)),
        "final": "post",
        "layout": "safetensors",
        "tp_rank": 0,
        "tp_size": 1,
        "writes": True,
        "dump_dir": str(served.server.dump_dir),
    }
    assert {key: marker[key] for key in expected} == expected
    (checked,) = served.server.markers(layout.MARKER_CHECKED)
    assert (checked["ranks"], checked["rank_difference"]) == (1, 0.0)
    assert checked["rows"] > 0
    assert marker["model_class"] == {"llama": "LlamaForCausalLM", "deepseek": "DeepseekV3ForCausalLM"}[served.arch]


def test_every_row_of_every_boundary_equals_hugging_face(served: Served, hugging_face: reference.HuggingFace) -> None:
    """24 of ours at once, some that also generate, and others' requests with the same prompts in the same batches."""
    server = served.server
    samples = {f"e3-hf-{n}-0": ids for n, ids in enumerate(reference.prompts(24, 1, LENGTHS))}
    samples["e3-hf-twin-0"] = samples["e3-hf-9-0"]
    before = folders(server)
    jobs = [(rid, ids, 0 if n % 3 else 24) for n, (rid, ids) in enumerate(samples.items())]
    jobs += [(f"theirs-{n}", ids, 4) for n, ids in enumerate(list(samples.values())[:6])]
    jobs += [(None, ids, 1) for ids in list(samples.values())[6:9]]
    with ThreadPoolExecutor(len(jobs)) as pool:
        answers = list(pool.map(lambda job: server.generate(*job), jobs))
    assert server.get("/health") == 200
    assert [answer["meta_info"]["cached_tokens"] for answer in answers] == [0] * len(jobs)
    for rid in samples:
        assert (server.folder(rid) / layout.DONE_FILE).exists(), rid
    assert folders(server) - before == {layout.folder_name(rid) for rid in samples}
    metas = [json.loads((server.folder(rid) / layout.META_FILE).read_text()) for rid in samples]
    assert all(set(layout.META_KEYS) <= set(meta) for meta in metas)
    assert [meta["tokens"] for meta in metas] == [len(ids) for ids in samples.values()]
    assert sum(len(meta["chunks"]) > 1 for meta in metas) >= 8
    if served.arch == "deepseek":
        assert "etract" in server.log.read_text(errors="replace"), "no request was retracted"
    found = hugging_face.errors(served.model, server, samples, "post")
    assert all(len(errors) == LAYERS + 2 for errors in found.values())
    assert reference.worst(found) < reference.TOLERANCE, found


def test_aborted_in_the_middle_leaves_nothing(served: Served) -> None:
    server = served.server
    long = [[3 + (n * 31 + i) % 1000 for i in range(1800)] for n in range(4)]
    rids = [f"e3-abort-{n}-0" for n in range(4)]

    def send(rid: str, ids: list[int]) -> None:
        body = {"rid": rid, "input_ids": ids, "sampling_params": {"max_new_tokens": 0}}
        try:
            server.post("/generate", body, timeout=40)
        except urllib.error.HTTPError as error:
            error.read()
            error.close()
        except TimeoutError:
            pass  # 0.5.9 never answers a request that was aborted while it waited, patched or not

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(send, rid, ids) for rid, ids in zip(rids, long, strict=True)]
        time.sleep(0.3)
        for rid in rids:
            server.post("/abort_request", {"rid": rid})
        for job in waiting:
            job.result()
    after = server.generate("e3-after-abort-0", long[0][:70])
    assert after["meta_info"]["prompt_tokens"] == 70
    assert (server.folder("e3-after-abort-0") / layout.DONE_FILE).exists()
    left = folders(server)
    there = [rid for rid in rids if layout.folder_name(rid) in left]
    assert len(there) < len(rids), "none of 1800 tokens was aborted in the middle"
    assert all((server.folder(rid) / layout.DONE_FILE).exists() for rid in there)
    assert not [name for name in left if name.startswith(".")]


def test_a_file_that_cannot_be_written_marks_its_request_and_no_more(served: Served) -> None:
    """The scheduler may not write files above 1 MB for a while: what a full disk does to one request."""
    server = served.server
    big, small = [5] * 600, [5] * 20
    pid = scheduler_of(server)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        server.generate("e3-big-0-0", big)
        error = json.loads((server.folder("e3-big-0-0") / layout.ERROR_FILE).read_text())
        server.generate("e3-small-0-0", small)
        assert (server.folder("e3-small-0-0") / layout.DONE_FILE).exists()
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    assert error["rid"] == "e3-big-0-0"
    assert "File too large" in error["reason"]
    assert not (server.dump_dir / "req_e3-big-0-0" / layout.STATES_FILE).exists()
    server.generate("e3-big-0-1", big)
    assert (server.folder("e3-big-0-1") / layout.DONE_FILE).exists()
    assert not [name for name in folders(server) if name.startswith(".")]


def scheduler_of(server: Server) -> int:
    """The pid of the scheduler, by the title SGLang gives it."""
    (pid,) = [pid for pid in members(server.process.pid) if "sglang::scheduler" in command_line(pid)]
    return pid


def test_a_removed_dump_directory_does_not_take_the_server_down(served: Served) -> None:
    server = served.server
    shutil.rmtree(server.dump_dir)
    server.dump_dir.write_text("in the way")
    assert server.generate("e3-lost-0-0", [7] * 30)["meta_info"]["prompt_tokens"] == 30
    wait_for(lambda: "e3-lost-0-0 cannot even be marked" in server.log.read_text(errors="replace"), "the warning")
    assert server.get("/health") == 200
    server.dump_dir.unlink()
    server.generate("e3-back-0-0", [7] * 30)
    assert (server.folder("e3-back-0-0") / layout.DONE_FILE).exists()
