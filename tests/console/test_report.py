"""The report of a run, as it is kept."""

from __future__ import annotations

import json

from eagle3_console.flow import RunResult
from eagle3_console.report import run_json
from eagle3_remote.protocol import (
    ExtractReport,
    ExtractState,
    ExtractStatus,
    Facts,
    Phase,
    ProbeReport,
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
