"""The three wraps around SGLang's own methods; `hooks` calls them with the freshly imported modules."""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Iterator
from typing import Any

import eagle3_patch
from eagle3_patch import config, files, hooks, markers, model, selfcheck
from eagle3_patch.capture import Capture
from eagle3_patch.rank import Rank
from eagle3_patch.taps import Taps


class _State:
    """What this process has become."""

    configured = False
    """SGLang captures layers for us, so that its logits processor must not see them."""
    rank: Rank | None = None
    """Once the model is configured."""


_state = _State()


def wrap_model_runner(module: types.ModuleType, settings: config.Settings) -> None:
    """After the weights are loaded, and before any graph is captured, configure the capture or refuse."""
    runner = module.ModelRunner
    real = runner.load_model

    @functools.wraps(real)
    def load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_draft_worker:
            return real(self, *args, **kwargs)
        with _refusing():
            _check(self, settings)
        result = real(self, *args, **kwargs)
        with _refusing():
            _configure(self, settings)
        return result

    runner.load_model = load_model


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Whatever fails before the server serves, stops it: SGLang ends all processes when one of its schedulers raises."""
    try:
        yield
    except markers.Refused:
        raise
    except (model.UnknownModel, selfcheck.Wrong, ValueError, OSError) as error:
        raise markers.refuse(str(error)) from error
    except Exception as error:
        raise markers.refuse(f"this SGLang is not as any known one ({type(error).__name__}: {error})") from error


def _check(runner: Any, settings: config.Settings) -> None:
    """What can be known before the weights, which take minutes on a real model."""
    reason = config.unsupported(runner.server_args)
    if reason is not None:
        raise model.UnknownModel(reason)
    missing = set(hooks.TARGETS) - hooks.applied
    if missing:
        raise model.UnknownModel(f"{', '.join(sorted(missing))} was imported in a way that the patch does not see")
    num_layers = getattr(runner.model_config, "num_hidden_layers", None)
    if isinstance(num_layers, int):
        model.boundaries_for(settings.boundaries, num_layers)
    if model.ranks().attn_tp_rank == 0:
        files.prepare_folder(settings.dump_dir)


def _configure(runner: Any, settings: config.Settings) -> None:
    ranks = model.ranks()
    decoder = model.find_decoder(runner.model)
    boundaries = model.boundaries_for(settings.boundaries, decoder.num_layers)
    native = model.capture_layers(decoder, boundaries)
    model.unfuse(decoder, native)
    _state.configured = bool(native)
    writes = ranks.attn_tp_rank == 0
    sglang_version = importlib.import_module("sglang").__version__
    facts = {
        "model_class": type(runner.model).__name__,
        "num_layers": decoder.num_layers,
        "hidden_size": decoder.hidden_size,
        "boundaries": list(boundaries),
        "final": settings.final,
        "layout": settings.layout,
    }
    taps = Taps(decoder, native, boundaries, settings.final)
    device = next(decoder.inner.parameters()).device
    own = {
        "sglang_version": sglang_version,
        "patch_version": eagle3_patch.__version__,
        "model": str(getattr(runner.server_args, "model_path", "")),
        "engine_ids": [boundary - 1 for boundary in native],
        "tp_rank": ranks.tp_rank,
    }
    _state.rank = Rank(decoder, taps, Capture(settings, taps, facts | own, device) if writes else None)
    markers.ready(
        {"patch": eagle3_patch.__version__, "sglang": sglang_version}
        | facts
        | {"tp_rank": ranks.tp_rank, "tp_size": ranks.tp_size, "writes": writes, "dump_dir": settings.dump_dir}
        | {"pinned_budget": settings.pinned_budget, "dump_budget": settings.dump_budget}
    )


def wrap_scheduler(module: types.ModuleType, settings: config.Settings) -> None:
    """Say which requests are in the batch; the forward runs in the same thread in all versions."""
    scheduler = module.Scheduler
    real = scheduler.run_batch

    @functools.wraps(real)
    def run_batch(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        rank = _state.rank
        if rank is None:
            return real(self, batch, *args, **kwargs)
        try:
            with _refusing():
                rank.begin(batch, self)
            result = real(self, batch, *args, **kwargs)
            with _refusing():
                rank.finish()
            return result
        finally:
            rank.end()

    scheduler.run_batch = run_batch


def wrap_logits_processor(module: types.ModuleType, settings: config.Settings) -> None:
    """Take the rows, and go on as if SGLang captured nothing.

    The captured layers are not passed on: with --enable-return-hidden-states they would replace what its clients get.
    """
    processor = module.LogitsProcessor
    real = processor.forward

    @functools.wraps(real)
    def forward(
        self: Any,
        input_ids: Any,
        hidden_states: Any,
        lm_head: Any,
        logits_metadata: Any,
        aux_hidden_states: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if _state.rank is not None:
            with _refusing():
                _state.rank.collect(input_ids, hidden_states, aux_hidden_states, logits_metadata)
        if _state.configured:
            aux_hidden_states = None
        return real(self, input_ids, hidden_states, lm_head, logits_metadata, aux_hidden_states, *args, **kwargs)

    processor.forward = forward
