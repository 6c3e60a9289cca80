"""The hand-made way of capturing hidden states, as the reference of a measurement: a synchronous copy of every layer and a
``torch.save`` in the middle of the forward. One rank, one GPU; not for use.

HANDMADE_DIR: where ``req_<rid>/{aux_0,aux_1,aux_2,final}.pt`` and ``done`` go. It shares no code with the patch.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading

HERE = os.path.dirname(os.path.realpath(__file__))
DUMP_DIR = os.environ.get("HANDMADE_DIR")
TARGETS = {
    "sglang.srt.model_executor.model_runner": "_configure",
    "sglang.srt.managers.scheduler": "_know_the_batch",
    "sglang.srt.layers.logits_processor": "_save_the_rows",
}
_batch = threading.local()
_parts = {}


def _chain():
    elsewhere = [entry for entry in sys.path if os.path.realpath(entry) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _configure(module):
    real = module.ModelRunner.load_model

    def load_model(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.model.set_eagle3_layers_to_capture(None)

    module.ModelRunner.load_model = load_model


def _know_the_batch(module):
    real = module.Scheduler.run_batch

    def run_batch(self, batch, *args, **kwargs):
        _batch.rows = None
        if batch.forward_mode.is_extend():
            numbers = zip(batch.reqs, list(batch.prefix_lens), list(batch.extend_lens), strict=True)
            _batch.rows = [(req.rid, len(req.origin_input_ids), prefix, extend) for req, prefix, extend in numbers]
        return real(self, batch, *args, **kwargs)

    module.Scheduler.run_batch = run_batch


def _save_the_rows(module):
    import torch

    real = module.LogitsProcessor.forward

    def forward(self, input_ids, hidden, lm_head, metadata, aux=None, *args, **kwargs):
        rows, start = getattr(_batch, "rows", None), 0
        if rows and aux is not None:
            parts = aux.split(hidden.shape[-1], -1) if isinstance(aux, torch.Tensor) else list(aux)
            for rid, prompt, prefix, extend in rows:
                if rid.startswith("e3-"):
                    states = [state[start : start + extend].cpu() for state in (*parts, hidden)]
                    _parts.setdefault(rid, []).append(states)
                    if prefix + extend >= prompt:
                        _save(rid, _parts.pop(rid))
                start += extend
        return real(self, input_ids, hidden, lm_head, metadata, aux, *args, **kwargs)

    def _save(rid, chunks):
        folder = os.path.join(DUMP_DIR, f"req_{rid}")
        os.makedirs(folder)
        names = [f"aux_{index}.pt" for index in range(len(chunks[0]) - 1)] + ["final.pt"]
        for index, name in enumerate(names):
            torch.save(torch.cat([chunk[index] for chunk in chunks]), os.path.join(folder, name))
        open(os.path.join(folder, "done"), "x").close()

    module.LogitsProcessor.forward = forward


class _Loader(importlib.abc.Loader):
    def __init__(self, real):
        self._real = real

    def create_module(self, spec):
        return self._real.create_module(spec)

    def exec_module(self, module):
        self._real.exec_module(module)
        globals()[TARGETS[module.__name__]](module)


class _Finder(importlib.abc.MetaPathFinder):
    _busy = threading.local()

    def find_spec(self, fullname, path, target=None):
        if fullname not in TARGETS or getattr(self._busy, "name", None) == fullname:
            return None
        self._busy.name = fullname
        try:
            spec = importlib.util.find_spec(fullname)
            spec.loader = _Loader(spec.loader)
            return spec
        finally:
            self._busy.name = None


_chain()
if DUMP_DIR:
    sys.meta_path.insert(0, _Finder())
