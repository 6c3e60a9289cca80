"""What a dataset tells of the server that made it."""

from __future__ import annotations

import json
from pathlib import Path

from eagle3_remote.extract.manifest import server_launch


def test_the_launch_line_is_told_and_no_secret(tmp_path: Path) -> None:
    env = {"PYTHONPATH": "/release", "HF_TOKEN": "hf_1", "AWS_SECRET_ACCESS_KEY": "a", "API_KEY": "k", "KEYBOARD": "us"}
    argv = ["/venv/bin/python", "-m", "sglang.launch_server"]
    (tmp_path / "spec.json").write_text(json.dumps({"server_argv": argv, "server_env": env}))
    left_out = dict.fromkeys(("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "API_KEY"), "(left out)")
    assert server_launch(str(tmp_path)) == (argv, env | left_out)


def test_a_run_that_does_not_tell_is_no_fault(tmp_path: Path) -> None:
    assert server_launch(str(tmp_path)) == ([], {})
