"""The training commands of the report, taken by each trainer's own reader of settings."""

from __future__ import annotations

import json
import shlex

import pytest

from eagle3_remote.extract import training
from tests.extract import trainers

MANIFEST = {
    "boundaries": [3, 31, 59],
    "final": "pre",
    "model": {"path": "/models/O'Kimi K2", "architecture": "DeepseekV3ForCausalLM"},
    "server": {"sglang_version": "0.5.23"},
}
SPECULATORS = """
import json, sys
from speculators.train.config import TrainConfig
made = TrainConfig.resolve(json.loads(sys.argv[1]))
print(json.dumps([made.draft.target_layer_ids, made.data.data_path, made.generation.on_missing if hasattr(made.generation, "on_missing")
    else "", made.verifier.verifier_name_or_path, made.data.total_seq_len]))
"""
SPECFORGE = """
import json, sys, tempfile
from specforge.config import load_config
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
    file.write(sys.argv[1])
    file.flush()
    made = load_config(file.name)
print(json.dumps([made.model.aux_hidden_state_layer_ids, made.data.hidden_states_path, made.mode, made.model.target_model_path, made.data.max_length]))
"""


@pytest.mark.timeout(900)  # the first run installs the trainers
def test_the_commands_are_what_the_trainers_read() -> None:
    speculators, specforge = training.commands(MANIFEST, "/data/hid den", 4096)
    words = shlex.split(speculators.command)
    assert words[:2] == ["speculators", "train"]
    said = json.loads(trainers.trainer("speculators-0.9.0").run(SPECULATORS, json.dumps(words[2:])).splitlines()[-1])
    assert said == [[3, 31, 59], "/data/hid den", "raise", "/models/O'Kimi K2", 4096]
    config = specforge.command.split("<<'YAML'\n")[1].split("\nYAML\n")[0]
    said = json.loads(trainers.trainer("specforge-0.2.0").run(SPECFORGE, config).splitlines()[-1])
    assert said == [[2, 30, 58], "/data/hid den-specforge", "offline", "/models/O'Kimi K2", 4096]


def test_the_notes_name_the_ids_of_each_engine() -> None:
    notes = " ".join(training.commands(MANIFEST, "/data/hidden", 4096)[1].notes)
    assert (
        "SGLang 0.5.23 (this model's class there): eagle_config.eagle_aux_hidden_state_layer_ids = [3, 31, 59]" in notes
    )
    assert "vLLM: eagle_aux_hidden_state_layer_ids = [3, 31, 59]" in notes


def test_what_a_trainer_cannot_use_is_said() -> None:
    speculators, specforge = training.commands({**MANIFEST, "boundaries": [0, 31, 59], "final": "post"}, "/d", 1)
    assert "here it was applied" in speculators.notes[0]
    assert specforge.command == ""
    assert "no embeddings; these are boundaries 0, 31, 59" in specforge.notes[0]
    assert training.commands({}, "/d", 1) == ()


def test_nothing_is_advised_that_cannot_be_or_comes_too_late() -> None:
    model = {**MANIFEST["model"], "vocab_size": 1024}  # type: ignore[dict-item]
    small = training.commands({**MANIFEST, "model": model, "data": {"shuffle": 7}}, "/d", 1)
    notes = " ".join(note for one in small for note in one.notes)
    assert "32000" not in notes
    assert "--draft-vocab 1024" in notes
    assert "--shuffle" not in notes
    assert "shuffled order (seed 7)" in notes
    large = " ".join(note for one in training.commands(MANIFEST, "/d", 1) for note in one.notes)
    assert large.count("--draft-vocab 32000") == 2
    assert "the order of the input" in large
