"""`after_import(name, action)`: call ``action(module)`` right after the module was imported, without importing it now."""

import importlib.abc
import sys
import threading

_actions = {}


class _Loader(importlib.abc.Loader):
    def __init__(self, real):
        self._real = real

    def create_module(self, spec):
        return self._real.create_module(spec)

    def exec_module(self, module):
        self._real.exec_module(module)
        for action in _actions.pop(module.__name__, ()):
            action(module)

    def __getattr__(self, name):
        return getattr(self._real, name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self._local = threading.local()

    def find_spec(self, name, path=None, target=None):
        busy = self._local.__dict__.setdefault("busy", set())
        # another such finder asks us while we ask it: without this guard the two recurse for ever
        if name not in _actions or name in busy:
            return None
        busy.add(name)
        try:
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                    return spec
        finally:
            busy.discard(name)
        return None


def after_import(name, action):
    """Register `action`; at once where the module is already there."""
    if name in sys.modules:
        action(sys.modules[name])
        return
    _actions.setdefault(name, []).append(action)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
