"""The only thing of ours on the server's ``PYTHONPATH``. Every Python process of the server runs it at start.

It hands over to the environment's own ``sitecustomize``, which it would otherwise hide, and then, only where a dump
directory is set, arranges for the patch to be applied to SGLang's modules when they are imported. It imports nothing of
SGLang or torch itself, and nothing of ours without that variable.
"""

import importlib.machinery
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
DUMP_VARIABLES = ("EAGLE3_DUMP_DIR", "SGLANG_HS_DUMP_DIR")
HUSH_VARIABLE = "EAGLE3_HUSH_FILE"
"""The names of `eagle3_patch.layout`, which is not imported without them."""


def chain() -> None:
    """Run the ``sitecustomize`` that Python would have found without us. Its own failure is reported, never raised."""
    elsewhere = [entry for entry in sys.path if os.path.realpath(entry) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    ours = sys.modules["sitecustomize"]
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules["sitecustomize"] = ours
        sys.stderr.write(f"eagle3-patch: {spec.origin} failed ({type(error).__name__}: {error}); going on without it\n")


def install() -> None:
    """Arrange for the patch; a server that asked for dumps and cannot get them must not serve without.

    The package is taken from this very release, wherever else one of its name may be installed.
    """
    package = os.path.dirname(HERE)
    try:
        spec = importlib.util.spec_from_file_location(
            "eagle3_patch", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{package} is no package")
        module = importlib.util.module_from_spec(spec)
        sys.modules["eagle3_patch"] = module
        spec.loader.exec_module(module)
        from eagle3_patch import hooks

        hooks.install()
        if os.environ.get(HUSH_VARIABLE):
            from eagle3_patch import hush

            hush.install()
    except Exception as error:
        reason = f"the patch in {package} does not load ({type(error).__name__}: {error}): deploy it again"
        line = "eagle3-patch refused: " + json.dumps({"reason": reason})
        sys.stdout.write(f"\n{line}\n")
        sys.stdout.flush()
        os._exit(3)


chain()
if any(os.environ.get(name) for name in DUMP_VARIABLES):
    install()
