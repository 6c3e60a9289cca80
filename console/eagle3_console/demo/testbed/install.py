"""Put a real SGLang for the CPU into a cached environment of its own. Standard library only.

    python -m eagle3_console.demo.testbed.install [VERSION ...]

The environment lies in ``$XDG_CACHE_HOME/eagle3-console/testbeds`` under a name that carries the hash of everything it
was made from, so a second call installs nothing, and a changed requirement file makes a new one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

VERSIONS = ("0.5.9", "0.5.23")
"""SGLang releases that have a requirement file here, oldest first; the last one is the default."""
NEEDS_PYTHON = (3, 11)
NEEDS_BYTES = 4_000_000_000
"""Free space asked for before an environment is made (it takes 1.4 to 1.7 GB, and pip unpacks beside it)."""
NEEDS_BYTES_WITH_CUDA = 12_000_000_000
"""The same where the package index has only the CUDA build of torch, which brings its libraries along."""

HERE = Path(__file__).resolve().parent
STUBS = HERE / "stubs"
_RECIPE = "1"
_STAMP = "complete.json"
_TORCH = "torch==2.13.0"
_WITHOUT_DEPENDENCIES = {
    "0.5.9": ("torchvision==0.28.0", "sglang==0.5.9"),
    "0.5.23": ("torchvision==0.28.0", "xgrammar==0.2.7", "sglang==0.5.23"),
}

Say = Callable[[str], None]


class TestBedUnavailable(Exception):
    """SGLang cannot run or be installed here; the message is one sentence with what to do."""

    __test__ = False


@dataclasses.dataclass(frozen=True)
class TestBed:
    """An environment in which a real SGLang server starts on the CPU."""

    __test__ = False

    python: Path
    stubs: Path
    """The only entry of the server's ``PYTHONPATH``: stand-ins for CUDA packages."""
    version: str
    env: dict[str, str]
    """What a box with this SGLang exports."""
    server_args: tuple[str, ...]
    """The flags that SGLang needs on a CPU, without model, host and port."""


def ensure(version: str = VERSIONS[-1], say: Say = lambda line: None) -> TestBed:
    """The test bed of one SGLang version, installed at the first call (about a minute), found at every later one.

    Safe against a second process doing the same, and against having been killed in the middle.

    Raises:
        TestBedUnavailable: not Linux x86-64, no Python 3.11 with venv, no space, or pip failed.
    """
    if version not in VERSIONS:
        raise TestBedUnavailable(f"No test bed for SGLang {version!r}: choose one of {', '.join(VERSIONS)}.")
    python = _base_python()
    home = _cache_home() / f"sglang-{version}-{_fingerprint(version, python)}"
    if not _complete(home):
        with _locked(home, say):
            if not _complete(home):
                _install(version, python, home, say)
    return _test_bed(version, home)


def _test_bed(version: str, home: Path) -> TestBed:
    env = {
        "VIRTUAL_ENV": str(home),
        "PYTHONPATH": str(STUBS),
        "SGLANG_USE_CPU_ENGINE": "1",
        # inductor would compile for half a minute at the first batches, and cannot without a real triton
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    flags = "--device cpu --grammar-backend none --chunked-prefill-size 256"
    # without a bound 0.5.9 takes half of the machine's memory for its KV cache
    flags += " --max-total-tokens 16384 --max-running-requests 32"
    # else its scheduler spins on a whole core while nothing is asked
    flags += " --sleep-on-idle"
    args = tuple(flags.split())
    return TestBed(home / "bin" / "python", STUBS, version, env, args)


def _base_python() -> str:
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise TestBedUnavailable(
            f"The embedded box runs SGLang on the CPU and needs Linux on x86-64, this is {system} on {machine}: "
            "run it in a Linux container or use a real box."
        )
    wanted = ".".join(map(str, NEEDS_PYTHON))
    python = sys.executable if sys.version_info[:2] == NEEDS_PYTHON else shutil.which(f"python{wanted}")
    if not python:
        raise TestBedUnavailable(
            f"The embedded box needs Python {wanted}, this is {platform.python_version()} and no python{wanted} is on "
            f"PATH: install Python {wanted}."
        )
    probe = subprocess.run(
        [python, "-c", "import ensurepip, sys, venv; print(*sys.version_info[:2])"], capture_output=True, text=True
    )
    if probe.returncode != 0:
        raise TestBedUnavailable(
            f"{python} cannot make virtual environments (no venv or ensurepip module): install the venv package of "
            f"Python {wanted}, on Debian and Ubuntu python{wanted}-venv."
        )
    if tuple(map(int, probe.stdout.split())) != NEEDS_PYTHON:
        raise TestBedUnavailable(f"{python} is not Python {wanted}: install Python {wanted}.")
    return python


def _cache_home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "eagle3-console" / "testbeds"


def _fingerprint(version: str, python: str) -> str:
    recipe = json.dumps([_RECIPE, _WITHOUT_DEPENDENCIES[version], os.path.realpath(python), NEEDS_PYTHON])
    return hashlib.sha256(recipe.encode() + _requirements(version).read_bytes()).hexdigest()[:12]


def _requirements(version: str) -> Path:
    return HERE / f"requirements-sglang-{version}.txt"


def _complete(home: Path) -> bool:
    return (home / _STAMP).is_file() and (home / "bin" / "python").exists()


@contextlib.contextmanager
def _locked(home: Path, say: Say) -> Iterator[None]:
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(home.with_name(home.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise TestBedUnavailable(
            f"{home.parent} cannot be written ({error.strerror}): set XDG_CACHE_HOME to a folder of yours."
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is installing the same SGLang, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _install(version: str, python: str, home: Path, say: Say) -> None:
    if home.exists():
        say(f"removing a half-made environment at {home}")
        shutil.rmtree(home)
    _ask_for_room(home.parent, NEEDS_BYTES, "SGLang for the CPU")
    say(f"installing SGLang {version} for the CPU into {home} (once, about a minute)")
    log = home.with_name(home.name + ".log")
    log.write_bytes(b"")
    _step([python, "-m", "venv", str(home)], log, "making the virtual environment failed")
    venv_python = str(home / "bin" / "python")
    pip = [venv_python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off"]
    if not offers_cpu_torch(pip):
        say(
            "pip's package index has only the CUDA build of torch, several GB: it serves as well, and takes long; set "
            "PIP_EXTRA_INDEX_URL to an index with the CPU build for a small one"
        )
        _ask_for_room(home.parent, NEEDS_BYTES_WITH_CUDA, "SGLang with the CUDA build of torch")
    say("installing torch and SGLang's own requirements")
    # one command for torch and all that asks for it, so that nothing replaces the build that was chosen
    _step([*pip, "-r", str(_requirements(version))], log, "pip failed")
    say(f"installing SGLang {version}")
    _step([*pip, "--no-deps", *_WITHOUT_DEPENDENCIES[version]], log, "pip failed")
    check = "import importlib.metadata as m, torch; print(m.version('sglang'), torch.__version__)"
    _step([venv_python, "-c", check], log, "the installed packages do not import")
    stamp = home / (_STAMP + ".tmp")
    stamp.write_text(json.dumps({"sglang": version, "recipe": _RECIPE}) + "\n")
    stamp.rename(home / _STAMP)
    say(f"SGLang {version} is ready")


def _ask_for_room(folder: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TestBedUnavailable(
            f"{folder} has {free / 1e9:.1f} GB free and {what} needs {needed / 1e9:.0f} GB: make room or set "
            "XDG_CACHE_HOME to a bigger disk."
        )


def offers_cpu_torch(pip: list[str]) -> bool:
    """Whether pip's package index has a CPU build of torch (the public one's Linux wheel is the CUDA build).

    Args:
        pip: the command line of ``pip install`` in the environment that is made.
    """
    asked = subprocess.run(
        [*pip, "--dry-run", "--quiet", "--no-deps", "--report", "-", _TORCH], capture_output=True, text=True
    )
    try:
        found = json.loads(asked.stdout)["install"][0]["metadata"]
    except (ValueError, LookupError):
        return False
    cuda = [name for name in found.get("requires_dist", ()) if name.startswith(("nvidia-", "cuda-", "triton"))]
    return str(found["version"]).endswith("+cpu") or not cuda


def _step(argv: list[str], log: Path, what: str) -> None:
    with log.open("ab") as out:
        out.write(("$ " + " ".join(argv) + "\n").encode())
        out.flush()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-5:]
        raise TestBedUnavailable(
            f"Installing SGLang for the CPU failed ({what}, exit code {done.returncode}): read {log}, check the "
            f"network and pip's settings, and call again; it ends with:\n" + "\n".join(last)
        )


def main(versions: list[str]) -> int:
    """Install the named versions, or the default one; prints one line a step and where each environment is."""
    for version in versions or [VERSIONS[-1]]:
        try:
            bed = ensure(version, say=lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
        except TestBedUnavailable as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 5
        print(bed.python)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
