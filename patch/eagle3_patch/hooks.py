"""Apply the patch to SGLang's modules right after each is imported. Standard library only until one of them is.

Three class attributes are wrapped, the same in 0.5.4 to 0.5.23: ``ModelRunner.load_model`` (configures the capture),
``Scheduler.run_batch`` (knows the requests of a batch) and ``LogitsProcessor.forward`` (has the rows of all tokens).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import types
from collections.abc import Sequence

from eagle3_patch import config, markers

TARGETS = {
    "sglang.srt.model_executor.model_runner": "wrap_model_runner",
    "sglang.srt.managers.scheduler": "wrap_scheduler",
    "sglang.srt.layers.logits_processor": "wrap_logits_processor",
}
"""Module -> the function of `eagle3_patch.wraps` that is given it."""

applied: set[str] = set()
"""The targets that are wrapped in this process."""


def install() -> None:
    """Watch for the targets; called once at the start of a process, before anything of SGLang is imported."""
    sys.meta_path.insert(0, _Finder())


def apply(module: types.ModuleType) -> None:
    """Wrap one target.

    Raises:
        markers.Refused: the environment's values mean nothing, or SGLang does not have what is to be wrapped. The import
            of the module fails with it, and with that the process.
    """
    name = module.__name__
    try:
        settings = config.read_settings(os.environ)
    except ValueError as error:
        raise markers.refuse(str(error)) from None
    # only here, where SGLang has imported torch already
    from eagle3_patch import wraps

    try:
        getattr(wraps, TARGETS[name])(module, settings)
    except AttributeError as error:
        raise markers.refuse(f"this SGLang has another {name} than any known one ({error})") from error
    applied.add(name)


class _Loader(importlib.abc.Loader):
    def __init__(self, real: importlib.abc.Loader) -> None:
        self._real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._real.exec_module(module)
        apply(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


class _Finder(importlib.abc.MetaPathFinder):
    """Asks the other finders and wraps the loader they find."""

    def __init__(self) -> None:
        self._local = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        busy: set[str] = self._local.__dict__.setdefault("busy", set())
        # another finder of this kind asks us while we ask it: without this guard the two recurse for ever
        if fullname not in TARGETS or fullname in busy:
            return None
        busy.add(fullname)
        try:
            for finder in list(sys.meta_path):
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find else None
                if spec is not None and spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                    return spec
        finally:
            busy.discard(fullname)
        return None
