"""`extract plan`: what an extraction will take, by the real code against the stand-in; nothing stays behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from eagle3_remote.protocol import ExtractSpec, PlanReport, decode, encode
from tests.extract import jobs
from tests.extract.made import states_bytes, write_data
from tests.extract.standin import StandIn, standin

IDS = [[i % 900 + 1] * (5 + i % 9) for i in range(100)]


def plan(python: Path, spec: ExtractSpec) -> tuple[int, PlanReport | None, str]:
    code = jobs.CODE.format(module="planning") + jobs.PLAIN
    argv = [str(python), "-c", code, json.dumps(encode(spec))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    report = decode(PlanReport, json.loads(done.stdout)) if done.stdout else None
    return done.returncode, report, done.stderr


def spec_of(server: StandIn, work: Path, **more: object) -> ExtractSpec:
    data = work / "data.jsonl"
    if not data.exists():
        write_data(data, IDS)
    given = {"out": str(work / "out"), "dump_dir": str(server.dump_dir), "model": str(server.model), **more}
    return ExtractSpec(data=str(data), server_url=server.url, **given)  # type: ignore[arg-type]


def test_the_forecast_is_exact_and_leaves_nothing(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        before = sorted(path.name for path in tmp_path.iterdir())
        code, made, said = plan(python, spec_of(server, tmp_path))
        assert (code, made is not None) == (0, True), said
        assert made is not None
        assert (made.samples, made.tokens, made.longest) == (100, sum(map(len, IDS)), 13)
        assert made.bytes == sum(len(states_bytes(ids)) for ids in IDS)
        assert (made.read, made.rejected, made.smoke_samples) == (1.0, 0, 32)
        assert made.tokens_per_s > 0
        assert made.eta is not None
        assert made.output.need > made.bytes
        assert made.rename == (tmp_path.stat().st_dev == server.dump_dir.stat().st_dev)
        assert list(server.dump_dir.iterdir()) == []
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "data.jsonl"])


def test_what_is_stored_is_not_counted_again(tmp_path: Path, python: Path) -> None:
    with standin(tmp_path) as server:
        few = jobs.prepare(tmp_path / "few", spec_of(server, tmp_path, limit=60))
        assert jobs.run(python, few, tuning=jobs.QUICK) == 0
        code, made, said = plan(python, spec_of(server, tmp_path, limit=60))
        assert made is not None, said
        assert (code, made.samples, made.tokens, made.bytes) == (0, 0, 0, 0)
        code, made, said = plan(python, spec_of(server, tmp_path, boundaries=(1, 4, 5)))
        assert (code, made) == (5, None)
        assert "was begun with other settings: boundaries" in said


def test_an_extraction_that_would_not_fit_is_refused_without_a_request(tmp_path: Path, python: Path) -> None:
    data = tmp_path / "data.jsonl"
    with standin(tmp_path) as server:
        write_data(data, [[1] * 2900] * 20)
        (server.model / "config.json").write_text(
            json.dumps({**json.loads((server.model / "config.json").read_text()), "hidden_size": 1 << 32})
        )
        code, made, said = plan(python, spec_of(server, tmp_path))
        assert made is not None, said
        assert code == 5
        assert any("are missing" in why for why in made.refused)
        assert made.smoke_samples == 0
        assert server.prompts == []
