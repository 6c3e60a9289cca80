"""The home of a user on a box, as a first run finds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.box.test_doctor import make_python
from tests.box.test_paths import CONFIG, lines, weights

NEEDED = ("torch", "safetensors", "httpx", "pyarrow", "numpy")


def make_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a model, data, and a Python that says it has SGLang; it is this process's own home from now on."""
    home = tmp_path / "user"
    home.mkdir()
    python = make_python(home / "venv", {"sglang": "9.9.9", **dict.fromkeys(NEEDED, "1.0")})
    model = home / "models" / "Kimi K2.5"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    weights(model / "model.safetensors")
    (home / "models" / "Kimi-K2").mkdir()
    lines(home / "tokenized_data.jsonl", [50, 60, 70], top=163_000)
    for name, value in (("HOME", home), ("XDG_CONFIG_HOME", home / "cfg"), ("XDG_STATE_HOME", home / "state")):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("VIRTUAL_ENV", str(python.parent.parent))
    return home
