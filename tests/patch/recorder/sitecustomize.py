"""An independent observer inside the server's processes, for the tests.

RECORDER_DIR: where it writes. RECORDER_NEXT: the ``sitecustomize.py`` that would have run without it.
Every process answers the file ``ask`` with ``modules.<pid>.json``: {module: file}.
RECORDER_FORWARDS=1: what each prefill of the inner model returned, as ``forward.<pid>.<n>.pt``.
RECORDER_FUSE=1: SGLang's fused all-reduce path is forced on, with an equal computation in the place of the GPU kernel.
RECORDER_MODEL=<class>: how the patch left that inner model, as ``model.<pid>.json``.
RECORDER_KEEP_FUSED=1: the patch leaves that fusion as it is: what its own check must find.
"""

import importlib.util
import json
import os
import sys
import threading
import time

HERE = os.environ["RECORDER_DIR"]
os.makedirs(HERE, exist_ok=True)

_spec = importlib.util.spec_from_file_location("standins_sitecustomize", os.environ["RECORDER_NEXT"])
_module = importlib.util.module_from_spec(_spec)
sys.path.append(os.path.dirname(os.environ["RECORDER_NEXT"]))
_spec.loader.exec_module(_module)


def _answer():
    while not os.path.exists(os.path.join(HERE, "ask")):
        time.sleep(0.1)
    names = {name: str(getattr(module, "__file__", None)) for name, module in list(sys.modules.items())}
    path = os.path.join(HERE, f"modules.{os.getpid()}.json")
    with open(path + ".tmp", "w") as file:
        json.dump(names, file)
    os.rename(path + ".tmp", path)


threading.Thread(target=_answer, daemon=True).start()


def _record(module, name):
    """Save what the inner model's forward gives its caller in a prefill, with the ids and lengths of the batch."""
    import torch

    cls = getattr(module, name)
    real, state = cls.forward, {"count": 0, "stream": None}

    def forward(self, input_ids, positions, forward_batch, *args, **kwargs):
        if "hooked" not in state:
            state["hooked"] = self.norm.register_forward_hook(lambda m, a, out: state.update(stream=out[1].clone()))
        result = real(self, input_ids, positions, forward_batch, *args, **kwargs)
        if forward_batch.forward_mode.name in ("EXTEND", "MIXED") and isinstance(result, tuple):
            hidden, aux = result
            aux = (
                torch.stack(list(aux), 1)
                if not isinstance(aux, torch.Tensor)
                else aux.view(len(aux), -1, hidden.shape[-1])
            )
            saved = {
                "ids": input_ids.clone(),
                "positions": positions.clone(),
                "lengths": torch.tensor(list(forward_batch.extend_seq_lens_cpu)),
                "aux": aux.clone(),
                "post": hidden.clone(),
                "pre": state["stream"],
            }
            path = os.path.join(HERE, f"forward.{os.getpid()}.{state['count']}.pt")
            torch.save(saved, path + ".tmp")
            os.rename(path + ".tmp", path)
            state["count"] += 1
        return result

    cls.forward = forward


def _fuse(module):
    """Force the fusion of the MLP's all-reduce with the next layer's norm (0.5.8 to 0.5.20)."""
    import torch

    module.apply_flashinfer_allreduce_fusion = lambda tokens: 0 < tokens <= module.FUSE_ALLREDUCE_MAX_BATCH_SIZE
    kernel = __import__("sglang.srt.layers.flashinfer_comm_fusion", fromlist=["x"])
    from sglang.srt.distributed import tensor_model_parallel_all_reduce

    calls = {"count": 0}

    def stand_in(input_tensor, residual, weight, eps=1e-6, **more):
        calls["count"] += 1
        with open(os.path.join(HERE, f"fused.{os.getpid()}"), "w") as file:
            file.write(str(calls["count"]))
        stream = tensor_model_parallel_all_reduce(input_tensor.clone()) + residual
        variance = stream.float().pow(2).mean(-1, keepdim=True)
        return (stream.float() * torch.rsqrt(variance + eps)).to(stream.dtype) * weight, stream

    kernel.flashinfer_allreduce_residual_rmsnorm = stand_in


def _describe(markers):
    """When the patch says that it is ready, look at the model itself."""
    real = markers.ready

    def ready(facts):
        import gc

        name, fuse = os.environ["RECORDER_MODEL"], "should_fuse_mlp_allreduce_with_next_layer"
        (model,) = [thing for thing in gc.get_objects() if type(thing).__name__ == name]
        found = {
            "layers_to_capture": list(model.layers_to_capture),
            "communicators": sum(hasattr(layer, "layer_communicator") for layer in model.layers),
            "not_fused": [
                index
                for index, layer in enumerate(model.layers)
                if fuse in vars(getattr(layer, "layer_communicator", None) or object)
            ],
        }
        with open(os.path.join(HERE, f"model.{os.getpid()}.json"), "w") as file:
            json.dump(found, file)
        real(facts)

    markers.ready = ready


after_import = sys.modules["standin_hook"].after_import
if os.environ.get("RECORDER_FORWARDS"):
    after_import("sglang.srt.models.llama", lambda module: _record(module, "LlamaModel"))
    after_import("sglang.srt.models.deepseek_v2", lambda module: _record(module, "DeepseekV2Model"))
if os.environ.get("RECORDER_MODEL"):
    after_import("eagle3_patch.markers", _describe)
if os.environ.get("RECORDER_KEEP_FUSED"):
    after_import("eagle3_patch.model", lambda module: setattr(module, "unfuse", lambda decoder, native: None))
if os.environ.get("RECORDER_FUSE"):
    after_import("sglang.srt.layers.communicator", _fuse)
