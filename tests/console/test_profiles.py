"""Profiles: what they may say, every mistake by file, line and key, and what wins over what."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from eagle3_console.benchtable import table
from eagle3_console.cli import build_parser, main
from eagle3_console.commands.bench import reported
from eagle3_console.commands.context import make_plan, make_session
from eagle3_console.errors import UsageError
from eagle3_console.plan import Plan
from eagle3_console.profiles import schema, store
from eagle3_console.profiles.lines import locate
from eagle3_console.profiles.profile import Profile, ProfileError, parse, read
from eagle3_remote.protocol import BenchReport, BenchRun

HERE = Path("/p/mine.toml")

WRONG = """\
descripton = "typo"
[server]
tp = 0
port = "8000"
modell = "/m"
[flags]
--page-size = 1
tp-size = 8
attention-bakend = [true]
[env]
NCCL_DEBUG = 1
"bad name" = "x"
EAGLE3_FINAL = "pre"
[dump]
boundaries = [  # over
  2, 2,
]
final = "mid"
max-seq-len = 3
[extrakt]
samples = 1
[[reference]]
figure = -1
what = "x"
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a person's own profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "eagle3-console" / "profiles"
    folder.mkdir(parents=True)
    return folder


def plan_of(*words: str) -> Plan:
    return make_plan(build_parser()[0].parse_args(["server", "start", "local", *words]))


def test_every_mistake_is_named_at_once_by_file_line_and_key() -> None:
    with pytest.raises(ProfileError) as wrong:
        parse(WRONG, HERE)
    said = [str(fault).removeprefix("/p/mine.toml:") for fault in wrong.value.faults]
    assert [(fault.line, fault.key) for fault in wrong.value.faults] == [
        (1, "descripton"),
        (3, "server.tp"),
        (4, "server.port"),
        (5, "server.modell"),
        (7, "flags.--page-size"),
        (8, "flags.tp-size"),
        (9, "flags.attention-bakend"),
        (11, "env.NCCL_DEBUG"),
        (12, "env.bad name"),
        (13, "env.EAGLE3_FINAL"),
        (15, "dump.boundaries"),
        (18, "dump.final"),
        (19, "dump.max-seq-len"),
        (20, "extrakt"),
        (22, "reference"),
        (23, "reference.figure"),
    ]
    for part in (
        "1: descripton: there is no such key before the first table; did you mean description",
        "3: server.tp: must be a whole number from 1 to 1024, not 0",
        "4: server.port: must be a whole number from 1 to 65535, not '8000'",
        "did you mean model",
        "must be a flag without its dashes: page-size",
        "has a key of its own: [server] tp",
        'must be text in quotes, like "1", not 1',
        "must be pre or post, not 'mid'",
        "this key belongs in [extract]",
        "there is no table [extrakt]; did you mean extract",
        "lacks unit, origin",
    ):
        assert any(part in line for line in said), part


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("[server]\ntp = \n", 2, "this is no TOML"),
        ("[server]\ntp = 1\ntp = 2\n", 3, "this is no TOML"),
        ("a = '''\n\n", 3, "this is no TOML"),
        ("server = 3\n", 1, "must be a table, [server], not a value"),
        ("server = {tp = -1}\n", 1, "server.tp: must be a whole number"),
        ("\n\nserver.tp = true\n", 3, "server.tp: must be a whole number from 1 to 1024, not true"),
        ("reference = 3\n", 1, "must be an array of tables"),
    ],
)
def test_broken_and_odd_files(text: str, line: int, part: str) -> None:
    with pytest.raises(ProfileError) as wrong:
        parse(text, HERE)
    (fault,) = wrong.value.faults
    assert fault.line == line
    assert part in str(fault)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"[server]\nmodel = '\xff'\n")
    with pytest.raises(ProfileError, match=r"x\.toml:2: it is not UTF-8 text"):
        read(path)
    with pytest.raises(ProfileError, match=r"gone\.toml: it cannot be read: No such file"):
        read(tmp_path / "gone.toml")
    path.write_bytes(b"[server]\r\ntp = 0\r\n")
    with pytest.raises(ProfileError, match=r"x\.toml:2: server\.tp"):
        read(path)


def test_keys_are_found_between_strings_comments_and_brackets() -> None:
    text = '''# [no] = 1
a = "x # y\\" [z]"
b = """
[not.a.table]
c = 1""""
d = [ # e = 1
  "]", {f = 1},
]
"g h".i = 'j'
[k . "l"]
m = 1
[[n]]
o = 1
[[n]]
o = 2
[n.p]
q = 3
'''
    found = locate(text)
    assert {".".join(map(str, path)): line for path, line in found.items()} == {
        "a": 2,
        "b": 3,
        "d": 6,
        "g h": 9,
        "g h.i": 9,
        "k.l": 10,
        "k.l.m": 11,
        "n.0": 12,
        "n.0.o": 13,
        "n.1": 14,
        "n.1.o": 15,
        "n.1.p": 16,
        "n.1.p.q": 17,
    }


def test_the_command_line_wins_over_the_profile_and_the_profile_over_the_default(own: Path) -> None:
    (own / "mine.toml").write_text(
        """
        [server]
        model = "/models/m"
        tp = 4
        python = "/venv/bin/python"
        attention-backend = "triton"
        [flags]
        mem-fraction-static = 0.8
        trust-remote-code = true
        sleep-on-idle = false
        cuda-graph-bs = [1, 2]
        [env]
        NCCL_DEBUG = "WARN"
        NCCL_ALGO = "Ring"
        [dump]
        boundaries = [59, 3]
        [extract]
        tokens-in-flight = 65536
        """
    )
    assert plan_of() == Plan()
    assert plan_of().said == frozenset()
    assert plan_of("--profile=mine", "--port=30000").said == {
        "model",
        "tp",
        "python",
        "boundaries",
        "tokens_in_flight",
        "port",
    }
    assert plan_of("--profile=mine") == Plan(
        model="/models/m",
        python="/venv/bin/python",
        tp=4,
        boundaries=(3, 59),
        tokens_in_flight=65536,
        server_args=(
            *("--attention-backend", "triton", "--mem-fraction-static", "0.8", "--trust-remote-code"),
            *("--cuda-graph-bs", "1", "2"),
        ),
        server_env={"NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"},
    )
    words = ["--profile", "mine", "--tp=1", "--boundaries=2,30", "--python=/other", "--tokens-in-flight=0"]
    words += ["--server-arg=--attention-backend=fa3", "--server-env=NCCL_DEBUG=INFO"]
    plan = plan_of(*words)
    assert (plan.tp, plan.boundaries, plan.python, plan.tokens_in_flight) == (1, (2, 30), "/other", 0)
    assert plan.server_args[-1] == "--attention-backend=fa3"
    assert "triton" not in plan.server_args
    assert plan.server_env == {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring"}


def test_the_agent_starts_in_the_profile_s_python(own: Path) -> None:
    (own / "mine.toml").write_text('[server]\npython = "/venv/bin/python"\n')
    args = build_parser()[0].parse_args(["open", "local", "--profile=mine"])
    assert make_session(args)._python == "/venv/bin/python"


def test_one_s_own_hides_the_built_in_of_its_name(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "llama.toml").write_text("[server]\ntp = 2\n")
    assert plan_of("--profile", "llama").tp == 2
    assert main(["profile", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["origin"]) for row in rows if row["name"] == "llama"] == [
        ("llama", "own"),
        ("llama", "built-in"),
    ]
    assert plan_of(f"--profile={own / 'llama.toml'}").tp == 2


@pytest.mark.parametrize("word", ["kimi", "nothing-like-it", "/no/such/file.toml"])
def test_a_profile_that_is_not_there(word: str) -> None:
    with pytest.raises(UsageError, match=r"There is no profile .*(did you mean kimi-k2\.5|there are|profile list)"):
        plan_of("--profile", word)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_profile_whose_file_is_gone_is_named(
    own: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (own / "gone.toml").symlink_to(own / "nowhere.toml")
    assert main(["profile", "show", "gone", *words]) == 2
    said = capsys.readouterr().err
    assert f"{own / 'gone.toml'}" in said
    assert "cannot be read: No such file or directory" in said


def test_a_wrong_profile_is_refused_with_all_its_mistakes(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "bad.toml").write_text(WRONG)
    assert main(["doctor", "local", "--profile", "bad"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("eagle3-console: The profile bad cannot be used:")
    assert said.count(f"{own / 'bad.toml'}:") == 16
    assert main(["profile", "validate"]) == 2
    shown = capsys.readouterr().out
    assert shown.count(f"{own / 'bad.toml'}:") == 16
    assert shown.count(": good") == 5
    assert main(["profile", "validate", "bad", "llama", "--json"]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert (first["good"], len(first["faults"]), second["good"]) == (False, 16, True)
    assert first["faults"][1]["line"] == 3
    assert main(["profile", "list"]) == 0
    assert "has 16 mistakes" in capsys.readouterr().out


def built_in(name: str) -> Profile:
    return read(store.BUILT_IN / f"{name}.toml")


def test_the_built_in_ones() -> None:
    assert {place.name for place in store.places()} == {"kimi-k2.5", "deepseek-v3", "qwen3", "llama", "gpt-oss"}
    for place in store.places():
        assert read(place.path).description
    kimi = built_in("kimi-k2.5")
    assert (kimi.options["tp"], kimi.options["boundaries"]) == (8, (3, 31, 59))
    assert kimi.flags["--attention-backend"] == ("triton",)
    assert all(name.startswith("NCCL_") for name in kimi.env)
    assert [(one.figure, one.unit) for one in kimi.references] == [(63.6, "tok/s"), (90.0, "tok/s"), (82.5, "tok/s")]
    assert all("not measured here" in one.origin for one in kimi.references)


def test_a_bench_shows_what_is_reported_of_its_model() -> None:
    run = BenchRun(1.8e9, "/models/moonshotai/Kimi-K2.5/", "0.5.9", 70.0, 7000.0, 128, 2048)
    text = table(BenchReport(run), reported(BenchReport(run)))
    for figure in ("63.6", "90.0", "82.5"):
        (row,) = [line for line in text.splitlines() if figure in line]
        assert "not measured here" in row
        assert "single-stream decode" in row
    assert reported(BenchReport(dataclasses.replace(run, model="/models/other"))) == []
    assert reported(BenchReport(None)) == []


def test_what_is_shown_can_be_saved_and_used(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "kimi-k2.5"]) == 0
    (own / "copy.toml").write_text(capsys.readouterr().out)
    assert dataclasses.replace(store.load("copy"), name="", path="") == dataclasses.replace(
        built_in("kimi-k2.5"), name="", path=""
    )


def test_each_option_of_a_run_that_a_profile_can_name_is_one() -> None:
    args = vars(build_parser()[0].parse_args(["run", "local"]))
    for keys in schema.TABLES.values():
        for key in keys.values():
            assert not key.option or key.option in args
