"""Stand-in for triton (1 GB) on a CPU: decorators hand back a kernel that cannot be launched; cdiv and next_power_of_2
are real. A really installed triton wins."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import typing


class Placeholder:
    """Any attribute or call gives another placeholder; a launch raises."""

    def __init__(self, name):
        self.__dict__["_name"] = self.__dict__["__name__"] = name

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        return Placeholder(f"{self._name}()")

    def __getitem__(self, key):
        raise RuntimeError(f"triton is a stand-in here: launch of {self._name}")

    def __or__(self, other):
        return typing.Any

    __ror__ = __or__

    def __contains__(self, item):
        return False

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __mro_entries__(self, bases):
        return (object,)


class Kernel:
    """What ``@triton.jit`` gives."""

    def __init__(self, function):
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = getattr(function, "__doc__", None)
        self.__module__ = getattr(function, "__module__", None)

    def __getitem__(self, grid):
        raise RuntimeError(f"triton is a stand-in here: launch of {self.__name__}")

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"triton is a stand-in here: call of {self.__name__}")

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")


def jit(function=None, **options):
    return Kernel(function) if callable(function) else Kernel


def _keep(*args, **options):
    return lambda function: function


def cdiv(a, b):
    return -(-a // b)


def next_power_of_2(n):
    return 1 << (int(n) - 1).bit_length() if n > 0 else 1


class Config:
    def __init__(self, kwargs, **options):
        self.kwargs = kwargs
        self.__dict__.update(options)


class JITFunction:
    pass


class Autotuner:
    pass


class constexpr:
    def __init__(self, value=None):
        self.value = value


class dtype:
    pass


class _Driver:
    @property
    def active(self):
        raise RuntimeError("0 active drivers ([]). There should only be one.")  # what real triton says without a GPU


_NAMES = {
    "triton": {
        "jit": jit,
        "autotune": _keep,
        "heuristics": _keep,
        "cdiv": cdiv,
        "next_power_of_2": next_power_of_2,
        "Config": Config,
        "JITFunction": JITFunction,
        "__version__": "3.5.0",
    },
    "triton.language": {"constexpr": constexpr, "dtype": dtype},
    "triton.runtime": {"JITFunction": JITFunction, "driver": _Driver()},
    "triton.runtime.jit": {"JITFunction": JITFunction},
    "triton.runtime.autotuner": {"Autotuner": Autotuner},
}


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{self.__name__}.{name}" in _NAMES:
            return importlib.import_module(f"{self.__name__}.{name}")
        return Placeholder(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "triton":
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        module.__dict__.update(_NAMES.get(module.__name__, {}))
        module.__file__ = __file__


def install():
    """Serve ``triton``, after every real finder."""
    sys.meta_path.append(_Finder())
