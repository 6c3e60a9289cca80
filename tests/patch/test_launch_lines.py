"""The line that `server start --dry-run` prints, held against the real parser of the release that it is for.

The two test beds' releases always; all nine where EAGLE3_ALL_SGLANG is set (`make test-all-sglang`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eagle3_console.demo.testbed import install
from eagle3_remote.server.argcheck import ArgumentChecker, NoParser
from tests.e2e.conftest import Ran, console, free_port
from tests.patch import releases
from tests.patch.servers import ROOT

RELEASES = tuple(releases.RELEASES) if os.environ.get("EAGLE3_ALL_SGLANG") else install.VERSIONS

PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
parsed = vars(parser.parse_args(json.loads(sys.argv[1])))
print("PARSED" + json.dumps({name: str(value) for name, value in parsed.items()}))
"""
"""The release's own parser, asked without any of our code."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As much of a model as a dry run looks at."""
    folder = tmp_path_factory.mktemp("models") / "small"
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 61, "hidden_size": 64, "vocab_size": 512}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def dry_run(bed: install.TestBed, model: Path, box: Path, *words: str) -> Ran:
    """``server start --dry-run`` on this machine; the box has the release in `bed`."""
    common = [f"--python={bed.python}", f"--box-dir={box}", f"--model={model}", f"--port={free_port()}"]
    return console("server", "start", "local", "--dry-run", "--json", *common, *words, env=bed.env)


def parsed_by(bed: install.TestBed, argv: Sequence[str]) -> dict[str, str]:
    """What the release itself makes of SGLang's arguments."""
    command = [str(bed.python), "-c", PARSE, json.dumps(list(argv))]
    done = subprocess.run(command, env={**os.environ, **bed.env}, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if line.startswith("PARSED")), None)
    assert line is not None, done.stderr[-2000:]
    parsed: dict[str, str] = json.loads(line.removeprefix("PARSED"))
    return parsed


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_takes_the_line(
    release: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bed = releases.ensure(release)
    words = ["--profile=kimi-k2.5", "--server-arg=--device", "--server-arg=cpu", "--tokens-in-flight=8192"]
    words += ["--server-arg=--random-se=7"]  # an abbreviation
    ran = dry_run(bed, model, tmp_path, *words)
    assert ran.code == 0, ran.err
    plan: dict[str, Any] = ran.json
    argv = plan["argv"]
    assert plan["sglang_version"] == release
    assert argv[1:4] == ["-u", "-m", "sglang.launch_server"]
    assert not [note for note in plan["notes"] if "NOT checked" in note]
    assert plan["env"]["EAGLE3_BOUNDARIES"] == "3,31,59"  # the profile's
    assert plan["env"]["NCCL_P2P_LEVEL"] == "SYS"
    assert "--random-seed=7" in argv
    parsed = parsed_by(bed, argv[4:])
    wanted = {
        "attention_backend": "triton",
        "trust_remote_code": "True",
        "model_path": str(model),
        "device": "cpu",
        "disable_radix_cache": "True",
        "skip_server_warmup": "True",
        "enable_metrics": "True",
        "chunked_prefill_size": "2048",
        "random_seed": "7",
    }
    assert {name: parsed[name] for name in wanted} == wanted
    assert "8" in (parsed.get("tp_size"), parsed.get("tensor_parallel_size"))
    off = [name for name, value in parsed.items() if name.startswith("disable_") and value == "True"]
    off += [name for name, value in parsed.items() if name.startswith("enforce_disable_") and value == "True"]
    with capsys.disabled():
        print(f"\nSGLang {release} takes: {' '.join(argv[4:])}\n  off: {', '.join(sorted(off))}")  # noqa: T201
    assert {"disable_cuda_graph", "disable_decode_cuda_graph"} & set(off)


def test_a_wrong_argument_is_refused_before_anything_starts(model: Path, tmp_path: Path) -> None:
    release = install.VERSIONS[0]
    bed = releases.ensure(release)
    unknown = dry_run(bed, model, tmp_path, "--server-arg=--device=cpu", "--server-arg=--atention-backend=triton")
    assert unknown.code == 5, unknown.err
    said = f"SGLang {release} has no --atention-backend; the nearest it has: --attention-backend"
    assert said in unknown.err
    assert "Traceback" not in unknown.err


@pytest.fixture(scope="module", params=install.VERSIONS)
def bed(request: pytest.FixtureRequest) -> install.TestBed:
    return install.ensure(request.param)


def test_what_the_parser_says_of_a_line(bed: install.TestBed, tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text("mem-fraction-static: 0.5\nenable-two-batch-overlap: true\n")
    checker = ArgumentChecker(release_folder(tmp_path))

    wrong = checker.ask(str(bed.python), bed.version, ["--model-path", "/m", "--attention-backend=tritom"], bed.env)
    assert "invalid choice: 'tritom'" in wrong.error
    assert {"--model-path", "--tp-size", "--disable-radix-cache"} <= wrong.names
    assert ["--tp-size" in option.names for option in wrong.meant("--tp")] == [True]
    assert "triton" in wrong.meant("--attention-backend")[0].choices

    merged = checker.ask(str(bed.python), bed.version, ["--model-path", "/m", "--config", str(config)], bed.env)
    assert "--mem-fraction-static" in merged.argv
    assert merged.error == ""
    assert merged.unfit.startswith("--enable-two-batch-overlap is on")


def test_a_parser_that_cannot_be_loaded_is_said_to_be_so(tmp_path: Path) -> None:
    bed = install.ensure(install.VERSIONS[-1])
    broken = tmp_path / "broken" / "sglang"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('libcuda is missing')")
    with pytest.raises(NoParser, match=r"cannot be loaded \(RuntimeError: libcuda is missing\)"):
        ArgumentChecker(release_folder(tmp_path)).ask(
            str(bed.python), bed.version, ["--model-path", "/m"], {"PYTHONPATH": str(broken.parent)}
        )
    with pytest.raises(NoParser, match="does not start"):
        ArgumentChecker(release_folder(tmp_path)).ask("/no/such/python", "0.5.9", [], {})


def test_a_parser_that_hangs_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = install.ensure(install.VERSIONS[-1])
    pid_file = tmp_path / "pid"
    hangs = tmp_path / "hangs" / "sglang"
    hangs.mkdir(parents=True)
    (hangs / "__init__.py").write_text(
        f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    monkeypatch.setattr("eagle3_remote.server.argcheck.TIMEOUT", 3.0)
    with pytest.raises(NoParser, match="no answer in 3 s"):
        ArgumentChecker(release_folder(tmp_path)).ask(
            str(bed.python), bed.version, [], {"PYTHONPATH": str(hangs.parent)}
        )
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def release_folder(tmp_path: Path) -> Path:
    """Where a box would have ``eagle3_patch``."""
    folder = tmp_path / "release"
    folder.mkdir(exist_ok=True)
    if not (folder / "eagle3_patch").exists():
        (folder / "eagle3_patch").symlink_to(ROOT / "patch" / "eagle3_patch")
    return folder
