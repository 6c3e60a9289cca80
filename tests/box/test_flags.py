"""Arguments taken apart and held against a parser: abbreviations, repeats, unknown and wrong ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eagle3_remote.server.argcheck import ArgumentChecker
from eagle3_remote.server.flags import Option, Parser, PlanError, explain, split, tidy

PARSER = Parser(
    (
        Option(("--model-path", "--model")),
        Option(("--tensor-parallel-size", "--tp-size")),
        Option(("--attention-backend",), choices=("triton", "flashinfer", "fa3")),
        Option(("--disable-radix-cache",), takes_value=False),
        Option(("--disable-cuda-graph",), takes_value=False),
        Option(("--disable-prefill-cuda-graph",), takes_value=False),
        Option(("--mem-fraction-static",)),
        Option(("--plugin",), repeats=True),
    ),
    (),
)


def test_options_keep_their_values() -> None:
    given = split(["--a", "-1", "--b={'x': 1}", "--c", "--d", "1", "2"])
    assert [(one.name, one.values) for one in given] == [
        ("--a", ("-1",)),
        ("--b", ("{'x': 1}",)),
        ("--c", ()),
        ("--d", ("1", "2")),
    ]


@pytest.mark.parametrize(
    ("args", "written"),
    [
        (("--attention", "fa3"), ("--attention-backend", "fa3")),
        (("--attention-b=fa3",), ("--attention-backend=fa3",)),
        (("--disable-rad",), ("--disable-radix-cache",)),
        (("--tensor-par", "8"), ("--tp-size", "8")),
        (("--tp", "8"), ("--tp-size", "8")),
        (("--mod=/m",), ("--model-path=/m",)),
        (("--plugin", "a", "--plugin", "b"), ("--plugin", "a", "--plugin", "b")),
        (("--disable-radix-cache", "--disable-rad"), ("--disable-radix-cache",)),
    ],
)
def test_abbreviations_are_written_out(args: tuple[str, ...], written: tuple[str, ...]) -> None:
    assert tidy(args, "0.5.9", PARSER) == written


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            ("--atention-backend", "fa3"),
            r"SGLang 0\.5\.9 has no --atention-backend; the nearest it has: --attention-backend",
        ),
        (
            ("--disable-piecewise-cuda-graph",),
            r"has no --disable-piecewise-cuda-graph; the nearest it has: --disable-prefill-cuda-graph",
        ),
        (("--zzz",), r"SGLang 0\.5\.9 has no --zzz\."),
        (("--disable", "--mem"), r"--disable may be each of --disable-cuda-graph, .*: write it out"),
        (
            ("--attention", "fa3", "--attention-backend=triton"),
            r"--attention-backend is given 2 times .*\(fa3; triton\)",
        ),
        (("--one", "--two"), r"no --one.* no --two"),
    ],
)
def test_wrong_ones_are_named_with_what_there_is_instead(args: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        tidy(args, "0.5.9", PARSER)


def test_long_lists_of_choices_are_not_read_out() -> None:
    words = "argument --attention-backend: invalid choice: 'tritom' (choose from 'triton', 'flashinfer', 'fa3')"
    assert explain(words, PARSER) == "--attention-backend cannot be 'tritom'; did you mean triton"
    words = "argument --attention-backend: invalid choice: 'x' (choose from triton, flashinfer, fa3)"  # Python 3.12
    assert explain(words, PARSER) == "--attention-backend cannot be 'x'; it may be triton, flashinfer, fa3"
    assert explain("argument --mem: expected one argument", PARSER) == "argument --mem: expected one argument"


PARSES = """
import json, sys
def main():
    argv = json.loads(sys.stdin.read())
    file = argv[-1].removeprefix("--config=")
    open(file + ".asked", "a").write("x")
    error = "bad" if "bad" in open(file).read() else ""
    print("EAGLE3-ARGUMENTS " + json.dumps({"options": [], "argv": argv, "error": error, "unfit": ""}))
"""


def checker(tmp_path: Path) -> ArgumentChecker:
    """Asks a stand-in for SGLang's parser, which takes every line whose last word names a file without 'bad' in it."""
    package = tmp_path / "eagle3_patch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "argcheck.py").write_text(PARSES)
    return ArgumentChecker(tmp_path)


@pytest.mark.parametrize("words", [("--config", "{}"), ("--config={}",), ("--tp", "2", "--config={}")])
def test_a_config_file_that_was_corrected_is_read_again(tmp_path: Path, words: tuple[str, ...]) -> None:
    asked, file = checker(tmp_path), tmp_path / "server.yaml"
    argv = [word.format(file) for word in words]
    file.write_text("bad: 1")
    assert asked.ask(sys.executable, "0.5.9", argv, {}).error == "bad"
    file.write_text("good: 1")
    assert asked.ask(sys.executable, "0.5.9", argv, {}).error == ""


def test_the_same_line_without_a_file_is_asked_once(tmp_path: Path) -> None:
    asked, file = checker(tmp_path), tmp_path / "server.yaml"
    file.write_text("")
    first = asked.ask(sys.executable, "0.5.9", [str(file)], {})
    assert asked.ask(sys.executable, "0.5.9", [str(file)], {"NCCL_DEBUG": "INFO"}) is first
    assert Path(f"{file}.asked").read_text() == "x"
