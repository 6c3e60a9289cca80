"""The layer ids that make each engine feed a drafter the boundaries it was trained on."""

from __future__ import annotations

import pytest

from eagle3_remote.extract import layerids

KIMI, QWEN = "KimiK25ForConditionalGeneration", "Qwen3ForCausalLM"


@pytest.mark.parametrize(
    ("boundaries", "architecture", "version", "ids"),
    [
        # Kimi-K2: [1, 29, 57] means [2, 30, 58] in every version; [2, 30, 58] means [3, 31, 59] before 0.5.13, itself after.
        ([2, 30, 58], KIMI, "0.5.9", [1, 29, 57]),
        ([2, 30, 58], KIMI, "0.5.23", [1, 29, 57]),
        ([3, 31, 59], KIMI, "0.5.10.post1", [2, 30, 58]),
        ([3, 31, 59], KIMI, "0.5.13", [3, 31, 59]),
        ([3, 31, 59], "DeepseekV3ForCausalLM", "0.6.0", [3, 31, 59]),
        ([1, 30, 58], KIMI, "0.5.23", None),
        ([3, 18, 33], QWEN, "0.5.23", [2, 17, 32]),
        ([3, 18, 33], QWEN, "0.5.9", [2, 17, 32]),
        ([0, 18, 33], QWEN, "0.5.23", None),
    ],
)
def test_sglang(boundaries: list[int], architecture: str, version: str, ids: list[int] | None) -> None:
    assert layerids.sglang(boundaries, architecture, version) == ids


def test_specforge_takes_three_layers_and_no_embeddings() -> None:
    assert layerids.specforge([2, 30, 58]) == [1, 29, 57]
    assert layerids.specforge([0, 30, 58]) is None
    assert layerids.specforge([2, 30]) is None
    assert layerids.speculators([2, 30, 58]) == [2, 30, 58]
