"""Stand-ins for packages of CUDA kernels: every import works, every call raises."""

import importlib.abc
import importlib.machinery
import sys
import types
import typing


class Missing:
    """A name of a package that is not here."""

    def __init__(self, name):
        self.__name__ = self._name = name
        self.__doc__ = "stand-in"

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"a stand-in for a CUDA-only symbol was called: {self._name}")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __or__(self, other):
        return typing.Any

    __ror__ = __or__


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, roots):
        self._roots = roots

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self._roots:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        module.__version__ = "0.0.0+standin"
        module.__file__ = __file__


def install(*roots):
    """Serve the packages `roots`, after every real finder: what is installed wins."""
    sys.meta_path.append(_Finder(frozenset(roots)))
