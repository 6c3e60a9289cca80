"""Boundaries as the engines that serve a drafter name them in ``eagle_config.eagle_aux_hidden_state_layer_ids``.

A boundary is the number of decoder layers already done. Read in the releases named: vLLM and speculators take the boundary itself;
SpecForge and most models of SGLang the layer before it. SGLang's deepseek_v2.py and glm4_moe_lite.py take the boundary since 0.5.13
(PR #25454), unless the first id is 1; its deepseek_v4.py always.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_AS_BOUNDARY = ("DeepseekV2", "DeepseekV3", "KimiK2", "GlmMoeDsa", "Glm4MoeLite", "MistralLarge3")
"""Classes that deepseek_v2.py or glm4_moe_lite.py serves (0.5.23); Kimi-K2 is a DeepseekV3ForCausalLM by its config.json."""


def speculators(boundaries: Sequence[int]) -> list[int]:
    """``--target-layer-ids`` (0.5 to 0.9), and the ids in the drafter that it saves, for vLLM."""
    return list(boundaries)


def specforge(boundaries: Sequence[int]) -> list[int] | None:
    """``aux_hidden_state_layer_ids`` (0.2): exactly three layers, and not the embeddings; `None` where it cannot name them."""
    return [one - 1 for one in boundaries] if len(boundaries) == 3 and min(boundaries) > 0 else None


def sglang(boundaries: Sequence[int], architecture: str, version: str) -> list[int] | None:
    """The ids by which SGLang of `version` feeds a drafter these boundaries; `None` where none do."""
    if min(boundaries) < 1:
        return None
    if architecture.startswith("DeepseekV4"):
        return list(boundaries)
    before = [one - 1 for one in boundaries]
    if not architecture.startswith(_AS_BOUNDARY) or release(version) < (0, 5, 13):
        return before
    return before if before[0] == 1 else None if boundaries[0] == 1 else list(boundaries)


def release(version: str) -> tuple[int, ...]:
    """``0.5.10.post1`` as (0, 5, 10); an unknown one is newer than any."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (1 << 30,)
