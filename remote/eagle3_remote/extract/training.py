"""How a trainer goes on with a dataset: its command, and the layer ids that whoever serves the drafter needs. Pure."""

from __future__ import annotations

import shlex
from typing import Any

from eagle3_remote.extract import layerids
from eagle3_remote.protocol import Training

_DRAFT_VOCAB = 32000


def commands(manifest: dict[str, Any], dataset: str, longest: int) -> tuple[Training, ...]:
    """For speculators and SpecForge; nothing while there is no manifest. `longest` is the longest sample in tokens."""
    if not manifest.get("boundaries"):
        return ()
    return _speculators(manifest, dataset, longest), _specforge(manifest, dataset, longest)


def _speculators(manifest: dict[str, Any], dataset: str, longest: int) -> Training:
    boundaries = manifest["boundaries"]
    words = [
        *("speculators", "train", "--speculator-type", "eagle3"),
        *("--verifier-name-or-path", manifest["model"]["path"], "--data-path", dataset),
        *("--target-layer-ids", *map(str, layerids.speculators(boundaries))),
        *("--total-seq-len", str(max(longest, 1)), "--on-missing", "raise", "--save-path", f"{dataset}-drafter"),
    ]
    notes = [
        "The dataset is read as it is by speculators 0.5 and newer; the command is that of 0.9.",
        f"The first nine tenths of the rows are for training, the rest for validation; they are in {_order(manifest)}.",
    ]
    size = _draft_vocab(manifest)
    if size == _DRAFT_VOCAB:
        notes.append(
            f"For a smaller vocabulary: eagle3-console vocab-map HOST --out {shlex.quote(dataset)} --to {shlex.quote(dataset)} --draft-vocab {size}, "
            f"and add --draft-vocab-size {size}."
        )
    if manifest["final"] != "pre":
        notes.insert(
            0,
            "speculators applies the final norm itself, and here it was applied: export with --format speculators --final pre first.",
        )
    return Training("speculators", shlex.join(words), (*notes, *_serving(manifest)))


def _specforge(manifest: dict[str, Any], dataset: str, longest: int) -> Training:
    ids = layerids.specforge(manifest["boundaries"])
    if ids is None:
        named = ", ".join(map(str, manifest["boundaries"]))
        return Training(
            "SpecForge", "", (f"SpecForge takes three layers and no embeddings; these are boundaries {named}.",)
        )
    exported = f"{dataset}-specforge"
    config = "\n".join(
        [
            "model:",
            f"  target_model_path: {_yaml(manifest['model']['path'])}",
            f"  aux_hidden_state_layer_ids: {ids}",
            f"  vocab_mapping_path: {_yaml(_vocabulary(exported))}",
            "data:",
            f"  hidden_states_path: {_yaml(exported)}",
            f"  max_length: {max(longest, 1)}",
            "training:",
            "  strategy: eagle3",
            f"output_dir: {_yaml(dataset + '-drafter')}",
        ]
    )
    command = f"cat > specforge.yaml <<'YAML'\n{config}\nYAML\nspecforge train --config specforge.yaml"
    notes = (
        f"Export first: eagle3-console export HOST --out {shlex.quote(dataset)} --to {shlex.quote(exported)} --format specforge",
        f"and choose its vocabulary: eagle3-console vocab-map HOST --out {shlex.quote(dataset)} --to {shlex.quote(_vocabulary(exported))} --draft-vocab {_draft_vocab(manifest)}",
        "The configuration is that of SpecForge 0.2.",
    )
    return Training("SpecForge", command, (*notes, *_serving(manifest)))


def _order(manifest: dict[str, Any]) -> str:
    seed = manifest.get("data", {}).get("shuffle")
    return "the order of the input" if seed is None else f"shuffled order (seed {seed})"


def _draft_vocab(manifest: dict[str, Any]) -> int:
    """No more than the model has; datasets of older releases do not say how many that are."""
    return min(_DRAFT_VOCAB, int(manifest["model"].get("vocab_size") or _DRAFT_VOCAB))


def _serving(manifest: dict[str, Any]) -> list[str]:
    """The ids by engine, where the drafter's config.json names them."""
    boundaries, version = manifest["boundaries"], manifest["server"]["sglang_version"]
    key = "eagle_config.eagle_aux_hidden_state_layer_ids"
    ids = layerids.sglang(boundaries, manifest["model"]["architecture"], version)
    sglang = f"{key} = {ids}" if ids is not None else "no ids give it these layers"
    return [
        f"To serve the drafter with SGLang {version} (this model's class there): {sglang}.",
        f"To serve it with vLLM: eagle_aux_hidden_state_layer_ids = {list(boundaries)}.",
    ]


def _vocabulary(exported: str) -> str:
    return f"{exported}/vocab_mapping/vocab_mapping.pt"


def _yaml(text: str) -> str:
    """A string that YAML takes as it is."""
    return "'" + text.replace("'", "''") + "'"
