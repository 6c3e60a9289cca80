"""Stand-ins that let SGLang's text models run on a machine without CUDA packages. For the test bed only.

Put alone on PYTHONPATH, so that every process of the server gets them. What is really installed always wins, and a
stand-in for a kernel raises when it is called, but for one (`_gated_expert`) that SGLang has no other way for.
"""

import importlib.metadata
import sys
import types

import standin_hook
import standin_kernels
import standin_triton


def _torchvision() -> None:
    """PyPI's torchvision links CUDA torch; beside CPU torch its registrations die with "operator torchvision::nms does
    not exist". Its pure-Python transforms are all that SGLang's text models import."""
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))


def _absorbed_mla(module: types.ModuleType) -> None:
    """SGLang has no MLA handler for the torch_native attention backend and takes triton's, whose prefill fails on shapes
    there (0.5.4 to 0.5.23). Absorbed MLA is right on it."""
    if hasattr(module, "_dispatch_mla_subtype"):
        module.AttentionBackendRegistry.register(
            "torch_native", lambda attention, batch: module._dispatch_mla_subtype(attention, batch)
        )


def _gated_expert(module: types.ModuleType) -> None:
    """Qwen2-MoE adds its gated shared expert by a triton kernel alone, also on a CPU (0.5.23): here the same sum in torch."""
    if not hasattr(module, "fused_gate_sigmoid_mul_add"):
        return

    def add(hidden, gate, shared, final):
        final += (hidden @ gate).sigmoid().unsqueeze(-1) * shared

    module.fused_gate_sigmoid_mul_add = add


def _is_before_0_5_8() -> bool:
    try:
        parts = importlib.metadata.version("sglang").split(".")[:3]
        return tuple(int(part) for part in parts) < (0, 5, 8)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


_torchvision()
standin_kernels.install("sgl_kernel", "torchao")
standin_triton.install()
standin_hook.after_import("sglang.srt.models.deepseek_common.attention_backend_handler", _absorbed_mla)  # 0.5.8 and newer
standin_hook.after_import("sglang.srt.models.deepseek_v2", _absorbed_mla)  # older
standin_hook.after_import("sglang.srt.models.qwen2_moe", _gated_expert)
if _is_before_0_5_8():
    import standin_vllm

    standin_vllm.install()
