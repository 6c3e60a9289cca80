"""The report of a run, as it is kept."""

from __future__ import annotations

import dataclasses
import json

from eagle3_console.flow import RunResult
from eagle3_console.report import markdown, run_json
from eagle3_remote.protocol import (
    ExtractReport,
    ExtractState,
    ExtractStatus,
    Facts,
    Phase,
    ProbeReport,
    Problem,
    ServerSpec,
    ServerStatus,
    VerifyReport,
)


def test_a_kept_report_holds_no_secret_of_the_servers_environment() -> None:
    spec = ServerSpec("/m", "/py", env={"HF_TOKEN": "hf_1", "NCCL_DEBUG": "WARN"})
    status = ExtractStatus(ExtractState.FINISHED, "Finished.", total=1, stored=1)
    told = {"HF_TOKEN": "(left out)", "NCCL_DEBUG": "WARN"}
    result = RunResult(
        Facts("box", "root", "Linux", "x86_64", "3.12", 0.0, "b"),
        ServerStatus(Phase.READY, "The server is ready.", spec=spec),
        ProbeReport(True, 19, 19, 19, 0, 4, "Probe."),
        status,
        VerifyReport("/out", True, 1, 19, 100),
        ExtractReport(status, "/out", {}, server_env=told),
    )
    made = run_json(result)
    assert made["server"]["spec"]["env"] == told
    assert "hf_1" not in json.dumps(made)


def test_a_report_names_the_host_and_takes_nothing_of_others_as_markup() -> None:
    status = ExtractStatus(ExtractState.FINISHED, "Finished.", total=1, stored=1)
    manifest = {
        "model": {"path": "/m/[a](b)", "architecture": "Llama"},
        "server": {"sglang_version": "0.5.9", "patch_version": "1"},
        **{"boundaries": [2, 4, 5], "num_layers": 8, "final": "pre", "final_means": "before"},
        **{"dtype": "bfloat16", "hidden_size": 64},
    }
    problem = Problem("line 3", "failed: x", "<b>*no*</b> | `rm` _x_ hs_1_2")
    told = ExtractReport(status, "/out", manifest, problems=(problem,), problem_count=1)
    text = markdown(told, "'root@gpu box'")
    assert "HOST" not in text
    early = dataclasses.replace(
        told, manifest={**manifest, "dtype": None, "server": {"sglang_version": "0.5.9", "patch_version": None}}
    )
    assert "None" not in markdown(early, "gpu"), "what is not known yet is left out"
    assert "eagle3-console export 'root@gpu box' --out /out" in text
    assert "eagle3-console verify 'root@gpu box'" in text
    assert r"/m/\[a\](b)" in text
    assert r"\<b\>\*no\*\</b\> \| \`rm\` \_x\_ hs_1_2" in text
