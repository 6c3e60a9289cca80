"""SGLang before 0.5.8 ends activation.py and layernorm.py with imports of vLLM's classes on a CPU without AMX kernels.

SGLang's own classes of the same names (their native forward) are handed back, so that vLLM is not needed. Without this
SGLang only logs the import error and serves another implementation of the model.
"""

import importlib.abc
import importlib.machinery
import sys
import types

import standin_kernels

_OWN = {
    "vllm.model_executor.layers.activation": "sglang.srt.layers.activation",
    "vllm.model_executor.layers.layernorm": "sglang.srt.layers.layernorm",
}
_OPS = "vllm._custom_ops"
_PACKAGES = {"vllm", _OPS, "vllm.model_executor", "vllm.model_executor.layers"}


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == _OPS:  # imported by RotaryEmbedding, never called on the CPU
            return standin_kernels.Missing(f"{_OPS}.{name}")
        if self.__name__ not in _OWN:
            raise AttributeError(name)
        return getattr(sys.modules[_OWN[self.__name__]], name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name not in _OWN and name not in _PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in _PACKAGES)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def install():
    """Serve ``vllm``, after every real finder."""
    sys.meta_path.append(_Finder())
