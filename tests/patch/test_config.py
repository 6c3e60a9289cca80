"""What the environment may say, and which servers are refused."""

from __future__ import annotations

import types
from typing import Any

import pytest

from eagle3_patch import config, layout, model

HERE = {layout.ENV_DUMP_DIR: "/dumps"}


def test_the_defaults() -> None:
    expected = config.Settings("/dumps", None, "pre", "safetensors", "e3-", 8 * 1024**3, 0)
    assert config.read_settings(HERE) == expected
    empty = dict.fromkeys(
        (layout.ENV_BOUNDARIES, layout.ENV_FINAL, layout.ENV_LAYOUT, layout.ENV_RID_PREFIX, layout.ENV_PINNED_BUDGET),
        "",
    )
    assert config.read_settings(HERE | empty) == expected


def test_everything_set() -> None:
    environ = HERE | {
        layout.ENV_BOUNDARIES: "31,3,59",
        layout.ENV_FINAL: "post",
        layout.ENV_LAYOUT: "pt",
        layout.ENV_RID_PREFIX: "mine-",
        layout.ENV_PINNED_BUDGET: "1000",
        layout.ENV_DUMP_BUDGET: "5000",
    }
    assert config.read_settings(environ) == config.Settings("/dumps", (3, 31, 59), "post", "pt", "mine-", 1000, 5000)


def test_the_older_name_counts_where_ours_is_unset() -> None:
    assert config.read_settings({layout.ENV_DUMP_DIR_OLD: "/old"}).dump_dir == "/old"
    assert config.read_settings(HERE | {layout.ENV_DUMP_DIR_OLD: "/old"}).dump_dir == "/dumps"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (layout.ENV_DUMP_DIR, "relative/dir"),
        (layout.ENV_BOUNDARIES, "2,x"),
        (layout.ENV_BOUNDARIES, "2,2,3"),
        (layout.ENV_BOUNDARIES, "-1"),
        (layout.ENV_BOUNDARIES, ","),
        (layout.ENV_FINAL, "Pre"),
        (layout.ENV_LAYOUT, "npz"),
        (layout.ENV_RID_PREFIX, "a/b"),
        (layout.ENV_PINNED_BUDGET, "1GB"),
        (layout.ENV_PINNED_BUDGET, "0"),
        (layout.ENV_PINNED_BUDGET, "-5"),
        (layout.ENV_DUMP_BUDGET, "much"),
    ],
)
def test_a_bad_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        config.read_settings(HERE | {name: value})


def server_args(**values: Any) -> types.SimpleNamespace:
    base = {"device": "cuda", "pp_size": 1, "speculative_algorithm": None, "disaggregation_mode": "null"}
    return types.SimpleNamespace(**base | values)


def test_an_ordinary_server_is_fine() -> None:
    assert config.unsupported(server_args()) is None
    assert config.unsupported(types.SimpleNamespace()) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pp_size", 2),
        ("attn_cp_size", 2),
        ("speculative_algorithm", "EAGLE3"),
        ("enable_two_batch_overlap", True),
        ("enable_nsa_prefill_context_parallel", True),
        ("enable_prefill_cp", True),
        ("enable_layernorm_sp", True),
        ("enable_attn_tp_input_scattered", True),
        ("enable_return_aux_hidden_states", True),
        ("dllm_algorithm", "x"),
    ],
)
def test_a_server_that_hides_or_splits_rows_is_refused_by_the_name_of_its_flag(name: str, value: Any) -> None:
    reason = config.unsupported(server_args(**{name: value}))
    assert reason is not None
    assert "--" + name.replace("_", "-") in reason


def test_disaggregation_is_refused() -> None:
    assert "--disaggregation-mode" in (config.unsupported(server_args(disaggregation_mode="prefill")) or "")


def graphs(backend: str) -> types.SimpleNamespace:
    return types.SimpleNamespace(prefill=types.SimpleNamespace(backend=backend))


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        ({"enable_piecewise_cuda_graph": True}, True),
        ({"enable_piecewise_cuda_graph": False}, False),
        ({"disable_piecewise_cuda_graph": False, "enable_piecewise_cuda_graph": False}, True),
        ({"disable_piecewise_cuda_graph": True}, False),
        ({"cuda_graph_config": graphs("breakable")}, True),
        ({"cuda_graph_config": graphs("disabled")}, False),
        ({"cuda_graph_config": graphs("breakable"), "device": "cpu"}, False),
    ],
)
def test_prefill_cuda_graphs_are_refused_on_a_gpu(values: dict[str, Any], bad: bool) -> None:
    reason = config.unsupported(server_args(**values))
    assert (reason is not None and "--disable-cuda-graph" in reason) == bad


class Inner:
    """A decoder as SGLang has it."""

    def __init__(self, count: int) -> None:
        self.layers = [types.SimpleNamespace(layer_communicator=None) for _ in range(count)]
        self.norm = object()
        self.layers_to_capture: list[int] = []


class CausalLM:
    """The class with the setter."""

    def __init__(self, count: int = 8, default: tuple[int, ...] | None = None) -> None:
        self.model = Inner(count)
        self.config = types.SimpleNamespace(hidden_size=64)
        self.capture_aux_hidden_states = False
        self._default = default or (2, count // 2, count - 3)

    def set_eagle3_layers_to_capture(self, layer_ids: list[int] | None = None) -> None:
        assert layer_ids is None
        self.capture_aux_hidden_states = True
        self.model.layers_to_capture = list(self._default)


def test_a_wrapper_without_a_setter_is_configured_on_its_language_model() -> None:
    """Kimi-K2.5 on 0.5.9."""
    wrapper = types.SimpleNamespace(language_model=CausalLM(61))
    decoder = model.find_decoder(wrapper)
    assert (decoder.num_layers, decoder.hidden_size) == (61, 64)
    assert model.capture_layers(decoder, (0, 2, 30, 58, 61)) == (2, 30, 58)
    assert wrapper.language_model.capture_aux_hidden_states
    assert wrapper.language_model.model.layers_to_capture == [2, 30, 58]


def test_with_nothing_to_capture_inside_sglang_is_left_alone() -> None:
    """The flag without layers kills DeepSeek's forward."""
    root = CausalLM()
    assert model.capture_layers(model.find_decoder(root), (0, 8)) == ()
    assert not root.capture_aux_hidden_states


def test_another_convention_of_the_setter_is_refused() -> None:
    decoder = model.find_decoder(CausalLM(8, default=(1, 3, 4)))
    with pytest.raises(model.UnknownModel, match=r"by default, not 2, N//2, N-3"):
        model.capture_layers(decoder, (2, 4, 5))


def test_flags_on_the_layers_are_those_asked_for_alone() -> None:
    """The qwen mixture-of-experts models."""
    root = CausalLM()
    for layer in root.model.layers:
        layer._is_layer_to_capture = False

    def mark(layers: list[int]) -> None:
        root.model.layers_to_capture = layers
        for index in layers:
            root.model.layers[index]._is_layer_to_capture = True

    root.model.set_eagle3_layers_to_capture = mark  # type: ignore[attr-defined]
    root.set_eagle3_layers_to_capture = lambda layer_ids: mark([2, 4, 5])  # type: ignore[method-assign]
    model.capture_layers(model.find_decoder(root), (3, 6))
    assert [n for n, layer in enumerate(root.model.layers) if layer._is_layer_to_capture] == [3, 6]


def test_only_the_layers_before_a_boundary_are_taken_out_of_the_fusion() -> None:
    root = CausalLM()
    for layer in root.model.layers:
        layer.layer_communicator = types.SimpleNamespace(should_fuse_mlp_allreduce_with_next_layer=lambda batch: True)
    decoder = model.find_decoder(root)
    model.unfuse(decoder, (2, 5))
    fused = [layer.layer_communicator.should_fuse_mlp_allreduce_with_next_layer(None) for layer in root.model.layers]
    assert [n for n, still in enumerate(fused) if not still] == [1, 4]


def test_a_model_without_layers_is_refused() -> None:
    root = CausalLM()
    del root.model.norm
    with pytest.raises(model.UnknownModel, match="no inner model with layers and norm"):
        model.find_decoder(root)


def test_too_small_for_the_default_is_refused() -> None:
    with pytest.raises(ValueError, match="too few for the default"):
        model.boundaries_for(None, 5)
    assert model.boundaries_for((0, 5), 5) == (0, 5)
