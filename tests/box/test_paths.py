"""Completing a path and looking at what lies there, by a real agent on real trees; nothing is left behind."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import socket
import stat
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagle3_remote.box import patience
from eagle3_remote.box.complete import complete
from eagle3_remote.box.disks import disks, driver, filesystem_of
from eagle3_remote.extract.journal import Journal
from eagle3_remote.extract.records import StoredFile
from eagle3_remote.extract.sources import find
from eagle3_remote.job import jobs, stopping
from eagle3_remote.protocol import DatasetLook, Looked, PathList, PathQuery
from tests.box.client import AgentProcess, agent, until
from tests.extract.made import journal_of, write_data
from tests.patch.servers import free_port

ODD = ("-rf", "with space", "ünïcode é", "tab\there", "quote'\"$(x)", "[bold]x[b]")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def box(release: Path, home: Path, user: Path) -> Iterator[AgentProcess]:
    with agent(release, home, env={"HOME": str(user)}) as one:
        yield one


def names(box: AgentProcess, typed: str, **more: Any) -> list[str]:
    return [one.name for one in box.ask(PathList, "path.complete", typed=typed, **more).entries]


def test_names_that_go_on(box: AgentProcess, user: Path) -> None:
    for name in ("part-10.jsonl", "part-2.jsonl", "Other.txt", ".hidden"):
        (user / name).write_text("x")
    (user / "parts").mkdir()
    (user / "to-parts").symlink_to("parts")
    (user / "to-nothing").symlink_to("gone")
    assert names(box, f"{user}/part") == ["parts", "part-2.jsonl", "part-10.jsonl"]
    assert names(box, f"{user}/part", folders_only=True) == ["parts"]
    assert names(box, "~/part") == names(box, "part") == names(box, f"{user}/part")
    assert names(box, f"{user}/.") == [".hidden"]
    assert ".hidden" not in names(box, f"{user}/")
    found = box.ask(PathList, "path.complete", typed=f"{user}/to-")
    assert [(one.name, one.is_dir, one.link, one.broken) for one in found.entries] == [
        ("to-parts", True, "parts", False),
        ("to-nothing", False, "gone", True),
    ]
    inside = box.ask(PathList, "path.complete", typed="~/JSONL")
    assert (inside.begins, [one.name for one in inside.entries]) == (False, ["part-2.jsonl", "part-10.jsonl"])


@pytest.mark.parametrize("name", ODD)
def test_odd_names(box: AgentProcess, user: Path, name: str) -> None:
    (user / name).mkdir()
    assert names(box, f"{user}/{name[:3]}") == [name]
    for typed in (f"{user}/{name}", f"~/{name}/"):
        out = box.ask(Looked, "path.look", out=typed).out
        assert out is not None
        assert (out.path, out.is_dir) == (f"{user}/{name}", True)


def test_a_name_that_is_not_utf8_is_told_and_can_be_asked_for(box: AgentProcess, user: Path) -> None:
    os.mkdir(os.fsencode(user) + b"/caf\xe9")
    (name,) = names(box, f"{user}/caf")
    assert os.fsencode(name) == b"caf\xe9"
    out = box.ask(Looked, "path.look", out=f"{user}/{name}").out
    assert out is not None
    assert out.exists


def test_a_folder_of_many_names_is_capped(box: AgentProcess, user: Path) -> None:
    for number in range(300):
        (user / f"f{number}").touch()
    found = box.ask(PathList, "path.complete", typed="~/f", limit=50)
    assert (len(found.entries), found.more) == (50, 250)
    assert found.entries[-1].name == "f49"


def test_what_cannot_be_listed_is_a_sentence(box: AgentProcess, user: Path) -> None:
    (user / "file").write_text("x")
    for typed, words in (
        ("/no/such/pla", "there is no folder /no/such/"),
        (f"{user}/file/x", "is a file, not a folder"),
    ):
        assert words in box.ask(PathList, "path.complete", typed=typed).error
    (user / "locked").mkdir(mode=0)
    if os.getuid():
        assert "may not be read" in box.ask(PathList, "path.complete", typed=f"{user}/locked/").error
    (user / "locked").chmod(0o700)


def test_nothing_typed_offers_places_to_begin(box: AgentProcess) -> None:
    found = box.ask(PathList, "path.complete", typed="")
    assert {"~", "/"} <= {one.name for one in found.entries}
    assert all(one.is_dir for one in found.entries)


def test_a_file_system_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead mount cannot be made here: a listing that waits for ever stands in for it."""
    forever = threading.Event()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: forever.wait() if path == "/mnt/dead" else scandir(path))
    try:
        for _ in range(patience.LIMIT):
            assert "did not answer in 0.01 s" in complete(PathQuery("/mnt/dead/x"), 0.01).error
        assert "still wait for a file system" in complete(PathQuery("/mnt/dead/x"), 0.01).error
    finally:
        forever.set()
    until(lambda: not complete(PathQuery("/"), 5).error)


def weights(path: Path, size: int = 64, cut: int = 0) -> None:
    """A safetensors file of one tensor, `cut` bytes of it missing at the end."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    data = struct.pack("<Q", len(header)) + header + b"x" * size
    path.write_bytes(data[: len(data) - cut])


CONFIG = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "vocab_size": 163840,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "max_position_embeddings": 262144,
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "compressed-tensors"},
    },
}


@pytest.fixture
def model(user: Path) -> Path:
    path = user / "Kimi K2.5"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    shards = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    for name in shards:
        weights(path / name)
    index = {"weight_map": {f"layer.{at}": name for at, name in enumerate(shards)}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def test_a_whole_model(box: AgentProcess, model: Path) -> None:
    look = box.ask(Looked, "path.look", model="~/Kimi K2.5/").model
    assert look is not None
    assert (look.fact.path, look.fact.num_layers, look.fact.hidden_size) == (str(model), 61, 7168)
    assert (look.heads, look.kv_heads, look.quantisation) == (64, 64, "compressed-tensors")
    assert (look.shards, look.missing, look.boundaries) == (3, (), (2, 30, 58))
    assert len(look.fingerprint) == 64


@pytest.mark.parametrize("index", [True, False])
def test_shards_that_are_missing_or_cut_off(box: AgentProcess, model: Path, index: bool) -> None:
    weights(model / "model-00002-of-00003.safetensors", cut=5)
    (model / "model-00003-of-00003.safetensors").unlink()
    if not index:
        (model / "model.safetensors.index.json").unlink()
    look = box.ask(Looked, "path.look", model=str(model)).model
    assert look is not None
    wrong = ("model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors")
    assert (look.shards, look.missing, look.missing_count) == (3, wrong, 2)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, struct.pack("<Q", 2) + b"[]", b"version https://git-lfs"])
def test_weights_that_are_none(box: AgentProcess, model: Path, content: bytes) -> None:
    (model / "model-00001-of-00003.safetensors").write_bytes(content)
    look = box.ask(Looked, "path.look", model=str(model)).model
    assert look is not None
    assert look.missing == ("model-00001-of-00003.safetensors",)


def test_a_model_that_is_none(box: AgentProcess, user: Path) -> None:
    look = box.ask(Looked, "path.look", model="~").model
    assert look is not None
    assert look.fact.error == "config.json is missing"


def lines(path: Path, lengths: list[int], top: int = 100) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [{"input_ids": list(range(top - n, top)), "loss_mask": [1] * n} for n in lengths]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_short_input_is_counted(box: AgentProcess, user: Path) -> None:
    lines(user / "data.jsonl", [5, 10, 15])
    with (user / "data.jsonl").open("a") as file:
        file.write('{"input_ids": []}\n')
    data = box.ask(Looked, "path.look", data="~/data.jsonl").data
    assert data is not None
    assert (data.kind, data.samples, data.tokens, data.exact) == ("jsonl", 3, 30, True)
    assert (data.longest, data.lowest_id, data.highest_id) == (15, 85, 99)
    assert (data.bad, data.first_bad) == (1, "line 4: input_ids is empty")


@pytest.mark.parametrize("packed", [False, True])
def test_a_long_input_is_estimated(box: AgentProcess, user: Path, packed: bool) -> None:
    path, draw = user / "data.jsonl", random.Random(1)
    rows = [[draw.randrange(90_000) for _ in range(4 + number % 40)] for number in range(20_000)]
    text = "".join(json.dumps({"input_ids": row}) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    data = box.ask(Looked, "path.look", data=str(path)).data
    assert data is not None
    assert (data.kind, data.exact) == ("jsonl.gz" if packed else "jsonl", False)
    assert 0.8 * 20_000 < data.samples < 1.2 * 20_000
    assert 0.8 * 470_000 < data.tokens < 1.2 * 470_000
    assert data.seen < 15_000
    assert data.without_mask == data.seen


def test_an_input_sorted_by_length_is_estimated_from_all_of_it(box: AgentProcess, user: Path) -> None:
    lines(user / "sorted.jsonl", sorted(4 + number % 400 for number in range(4000)), top=90_000)
    data = box.ask(Looked, "path.look", data="~/sorted.jsonl").data
    assert data is not None
    assert 0.8 * 814_000 < data.tokens < 1.2 * 814_000
    assert 0.7 * 4000 < data.samples < 1.3 * 4000
    assert data.longest > 350


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none", None, "does not exist"),
        ("empty.jsonl", b"", "is empty"),
        ("cut.jsonl.gz", gzip.compress(b"{}\n" * 9)[:-9], "cannot be read"),
    ],
    ids=["none", "empty", "cut"],
)
def test_inputs_that_are_none(box: AgentProcess, user: Path, name: str, content: bytes | None, words: str) -> None:
    if content is not None:
        (user / name).write_bytes(content)
    data = box.ask(Looked, "path.look", data=f"~/{name}").data
    assert data is not None
    assert words in data.error


def test_text_that_is_no_samples(box: AgentProcess, user: Path) -> None:
    (user / "book.txt").write_text("once upon a time\n" * 5)
    data = box.ask(Looked, "path.look", data="~/book.txt").data
    assert data is not None
    assert (data.samples, data.bad) == (0, 5)
    assert data.first_bad.startswith("line 1: not JSON")


def test_an_output(box: AgentProcess, user: Path) -> None:
    out = box.ask(Looked, "path.look", out="~/new").out
    assert out is not None
    assert (out.path, out.exists, out.parent_exists, out.writable) == (str(user / "new"), False, True, True)
    assert out.total >= out.free > 0
    assert out.filesystem == filesystem_of(str(user)) != ""
    assert not (user / "new").exists()
    far = box.ask(Looked, "path.look", out="~/no/such/new").out
    assert far is not None
    assert (far.parent_exists, far.parent) == (False, str(user))
    (user / "theirs").mkdir()
    (user / "theirs" / "data-00000-of-00001.arrow").touch()
    theirs = box.ask(Looked, "path.look", out="~/theirs").out
    assert theirs is not None
    assert theirs.foreign == "data-00000-of-00001.arrow"
    (user / "made" / ".eagle3").mkdir(parents=True)
    (user / "made" / ".eagle3" / "journal.sqlite3").touch()
    for name in ("hidden_states", "hidden_states/new", ".eagle3/new", "new", "a/b"):
        inside = box.ask(Looked, "path.look", out=f"~/made/{name}").out
        assert inside is not None
        assert inside.error.startswith(f"it lies inside the dataset {user / 'made'} ")
    for name in ("made", "made.array/shards/0-of-8", "made-2"):
        right = box.ask(Looked, "path.look", out=f"~/{name}").out
        assert right is not None
        assert right.error == ""
    locked = user / "locked"
    locked.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    mine = box.ask(Looked, "path.look", out="~/locked/new").out
    assert mine is not None
    assert mine.writable is (os.getuid() == 0)


def test_a_dataset_tells_how_far_it_is_with_which_data(box: AgentProcess, user: Path) -> None:
    """As an extraction writes it: the journal of the real reading, and the identity of the real input."""
    data = user / "data.jsonl"
    write_data(data, [[1, 2, 3], [4, 5], [], [6], [1, 2, 3], [7] * 10])
    dataset, journal = journal_of(user / "out", data)

    def look() -> DatasetLook:
        out = box.ask(Looked, "path.look", out=str(user / "out")).out
        assert out is not None
        assert out.dataset is not None
        return out.dataset

    def stored(*rows: tuple[int, int]) -> None:
        again = Journal(dataset.journal)
        again.set_stored([StoredFile(line, row, 1, 0, 0.0) for line, row in rows])
        again.close()

    identity = {"data": find(str(data)).identity(), "shuffle": None, "shard": "0/1"}
    journal.put("identity", identity)
    journal.close()
    assert (look().stored, look().settled) == (0, 0)
    stored((1, 0), (2, 1))
    one = look()
    assert (one.stored, one.settled) == (2, 3), "line 3 was refused: nothing is to be done for it"
    assert (one.lines, one.samples, one.tokens) == (6, 5, 19)
    stored((4, 2), (5, 3), (6, 4))
    assert (look().stored, look().settled) == (5, 6)
    write_data(user / "other.jsonl", [[1, 2, 3]])
    for path in (data, user / "other.jsonl"):
        looked = box.ask(Looked, "path.look", data=str(path)).data
        assert looked is not None
        assert (looked.identity == one.input != "") is (path == data)
    again = Journal(dataset.journal)
    again.put("identity", {**identity, "shuffle": 7})
    again.close()
    assert (look().settled, look().lines, look().stored) == (0, 0, 5), "the first lines are not the first samples"


def test_an_output_that_shares_a_folder_with_model_or_data(box: AgentProcess, user: Path, model: Path) -> None:
    lines(user / "in" / "data.jsonl", [5])
    for name, words in (
        ("Kimi K2.5/new", f"lies inside the model's folder {model}"),
        ("in", f"holds the data {user / 'in' / 'data.jsonl'}"),
        ("", "holds the model"),
        ("new", ""),
    ):
        look = box.ask(Looked, "path.look", out=f"~/{name}", model=str(model), input="~/in/data.jsonl")
        assert look.out is not None
        assert words in look.out.error
        assert bool(look.out.error) == bool(words)
        assert look.data is None, "its place counts, it is not read"


UNFIT: dict[str, str] = {
    "/no/such/python": "could not be started",
    "/dev/null": "could not be started",
    shutil.which("true") or "": "exit code 0",
    shutil.which("false") or "": "exit code 1",
}


@pytest.mark.parametrize("python", UNFIT)
def test_a_python_that_cannot_read_says_nothing_of_the_data(box: AgentProcess, user: Path, python: str) -> None:
    lines(user / "data.jsonl", [5])
    data = box.ask(Looked, "path.look", data="~/data.jsonl", python=python).data
    assert data is not None
    assert (data.error, data.samples) == ("", 0)
    assert python in data.python_error
    assert UNFIT[python] in data.python_error


def test_a_port_that_is_taken_gives_the_next_one(box: AgentProcess) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = int(holder.getsockname()[1])
        look = box.ask(Looked, "path.look", port=port)
        assert look.port is not None
        assert look.port.free
        assert port < look.port.port < port + 50
        assert look.asked is not None
        assert (look.asked.port, look.asked.free, look.asked.job) == (port, False, "")
        assert look.asked.holder.startswith(f"pid {os.getpid()} (user ")
    look = box.ask(Looked, "path.look", port=port)
    assert look.asked is not None
    assert look.asked == look.port
    assert look.asked.free


LISTENS = (
    "import socket, time; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); time.sleep(600)"
)


@pytest.mark.parametrize("whose", ["ours", "of another box folder"])
def test_a_port_that_a_server_of_ours_holds_is_told_as_such(
    box: AgentProcess, home: Path, release: Path, tmp_path: Path, whose: str
) -> None:
    """A stand-in for the server: all that counts is which job holds the port."""
    where, port = home if whose == "ours" else tmp_path / "neighbour", free_port()
    line = [sys.executable, "-u", "-c", LISTENS.format(port=port)]
    job = jobs.start(where, release, jobs.new_id("server"), line, {}, {"model": "m", "python": "p", "port": port})
    try:
        until(lambda: "up" in job.log_path.read_text())
        asked = box.ask(Looked, "path.look", port=port).asked
    finally:
        stopping.stop(job)
    assert asked is not None
    assert (asked.free, asked.job) == (False, job.id if whose == "ours" else "")
    assert f"'127.0.0.1', {port}" in asked.holder


def test_the_box_as_a_whole(box: AgentProcess) -> None:
    look = box.ask(Looked, "path.look", disks=True)
    assert [(one.path, one.filesystem, one.total) for one in look.disks] == [
        (one.path, one.filesystem, one.total) for one in disks(2)
    ]
    assert look.driver == driver()


def test_nothing_is_left_behind(box: AgentProcess, user: Path, model: Path) -> None:
    lines(user / "data.jsonl", [5])
    before = sorted(map(str, user.rglob("*")))
    box.call("path.look", model=str(model), data="~/data.jsonl", out="~/new", port=30000, disks=True)
    box.call("path.complete", typed="~/")
    assert sorted(map(str, user.rglob("*"))) == before
