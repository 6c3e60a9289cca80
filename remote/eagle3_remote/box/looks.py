"""What lies at the paths of a run that is being set up. Looks only: nothing is written, made or locked."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.box import begun, doctor
from eagle3_remote.box.complete import real
from eagle3_remote.box.disks import disks, driver, filesystem_of
from eagle3_remote.box.patience import NoAnswer, within
from eagle3_remote.extract import facts, place
from eagle3_remote.extract.errors import ExtractionError
from eagle3_remote.files import read_json
from eagle3_remote.job import jobs, shortjobs
from eagle3_remote.protocol import (
    DataLook,
    Looked,
    LookQuery,
    ModelFact,
    ModelLook,
    OutLook,
    PortFact,
    decode,
)
from eagle3_remote.rpc import Refused

_PORTS = 200
_INDEX = "model.safetensors.index.json"
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.(safetensors|bin)")
_SHOWN = 5


class Looker:
    """Answers a `LookQuery`.

    Args:
        home: the box folder: servers that were started from another one are not ours.
        release: the folder that holds ``eagle3_remote``.
    """

    def __init__(self, home: Path, release: Path) -> None:
        self._home = home
        self._release = release

    def look(self, query: LookQuery) -> Looked:
        """Everything that is asked for; what is wrong with a path is told in its part of the answer."""
        model = self.model(query.model, query.seconds) if query.model else None
        return Looked(
            model=model,
            data=self.data(query.data, query.python, query.seconds) if query.data else None,
            out=self.out(query.out, model, query.input, query.seconds) if query.out else None,
            port=free_port(query.port) if query.port else None,
            asked=self._port(query.port) if query.port else None,
            disks=disks(min(query.seconds, 2.0)) if query.disks else (),
            driver=driver() if query.disks else "",
        )

    def model(self, path: str, seconds: float) -> ModelLook:
        """A model's folder."""
        try:
            return within(seconds, path, lambda: model_look(real(path)))
        except NoAnswer as slow:
            return ModelLook(ModelFact(path, True, error=str(slow)))

    def data(self, path: str, python: str, seconds: float) -> DataLook:
        """An input, read in a process of its own: with the Python named, where there is one, for the sake of tables.

        A Python that cannot do it says nothing of the input: it is told apart.
        """
        where, reader = real(path), os.path.expanduser(python) if python else sys.executable
        try:
            return within(
                seconds + 5.0,
                path,
                lambda: decode(
                    DataLook,
                    shortjobs.run(
                        self._release,
                        reader,
                        "extract.datalook",
                        where,
                        str(seconds),
                        seconds=seconds + 4.0,
                    ),
                ),
            )
        except shortjobs.NotStarted as error:
            return DataLook(where, python_error=str(error))
        except shortjobs.Ended as error:
            # What is wrong with an input is an answer; only a signal (too little memory) can still be its fault.
            if error.code < 0:
                return DataLook(where, error=str(error))
            return DataLook(where, python_error=f"{reader} could not read the data: {error}.")
        except (NoAnswer, Refused) as error:
            return DataLook(where, error=str(error))

    def _port(self, port: int) -> PortFact:
        """A port as it is; whose holder is no server of this box folder's, is somebody else's."""
        fact = decode(PortFact, doctor.port_fact(port))
        ours = {job.id for job in jobs.everything(self._home, "server")} if fact.job else ()
        return fact if fact.job in ours else dataclasses.replace(fact, job="")

    def out(self, path: str, model: ModelLook | None, data: str, seconds: float) -> OutLook:
        """Where the dataset is to go."""
        try:
            return within(seconds, path, lambda: out_look(real(path), model, real(data) if data else ""))
        except NoAnswer as slow:
            return OutLook(path, error=str(slow))


def free_port(first: int) -> PortFact:
    """The first port from `first` on that nobody listens at; `first` itself, with its holder, where there is none."""
    for port in range(first, min(first + _PORTS, 65536)):
        fact = decode(PortFact, doctor.port_fact(port))
        if fact.free:
            return fact
    return decode(PortFact, doctor.port_fact(first))


# -- the model ------------------------------------------------------------------------------------------------------------


def model_look(path: str) -> ModelLook:
    """What the folder `path` says of its model, and whether its weights are whole."""
    look = ModelLook(decode(ModelFact, doctor.model_fact(path)))
    if look.fact.error:
        return look
    config = _config(path)
    text = config.get("text_config")
    both = {**config, **(text if isinstance(text, dict) else {})}
    quantised = both.get("quantization_config")
    shards, missing = _shards(path)
    with contextlib.suppress(ValueError):
        look = dataclasses.replace(look, boundaries=layout.default_boundaries(look.fact.num_layers))
    with contextlib.suppress(ExtractionError, OSError):
        look = dataclasses.replace(look, fingerprint=facts.read_model(path).fingerprint)
    return dataclasses.replace(
        look,
        heads=_number(both.get("num_attention_heads")),
        kv_heads=_number(both.get("num_key_value_heads")),
        quantisation=str(quantised.get("quant_method", "")) if isinstance(quantised, dict) else "",
        shards=shards,
        missing=tuple(missing[:_SHOWN]),
        missing_count=len(missing),
    )


def _config(path: str) -> dict[str, Any]:
    read = read_json(Path(path) / "config.json")
    return read if isinstance(read, dict) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _shards(path: str) -> tuple[int, list[str]]:
    """(weight files that there should be, those that are missing or cut off)."""
    index = read_json(Path(path) / _INDEX)
    named = index.get("weight_map") if isinstance(index, dict) else None
    present = [name for name in os.listdir(path) if name.endswith((".safetensors", ".bin"))]
    if isinstance(named, dict):
        wanted = sorted({str(name) for name in named.values()})
    else:
        wanted = sorted({*present, *_numbered(present)})
    return len(wanted), [name for name in wanted if not _whole(os.path.join(path, name))]


def _numbered(names: list[str]) -> set[str]:
    """The files of a numbered series (``model-00003-of-00064.safetensors``), from those of it that are there."""
    series: set[str] = set()
    for name in names:
        if (found := _NUMBERED.fullmatch(name)) is not None:
            last = int(found[3])
            series |= {f"{found[1]}-{at:05d}-of-{found[3]}.{found[4]}" for at in range(1, last + 1)}
    return series


def _whole(path: str) -> bool:
    """Whether the file is there, and as long as its own header says (a download that broke off is shorter)."""
    try:
        size = os.stat(path).st_size
        if not os.path.isfile(path) or not path.endswith(".safetensors"):
            return os.path.isfile(path) and size > 0
        with open(path, "rb") as file:
            head = file.read(8)
            if len(head) < 8:
                return False
            (length,) = struct.unpack("<Q", head)
            if length > min(size, 256 << 20):
                return False
            header = json.loads(file.read(length))
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        return bool(size >= 8 + length + max(ends, default=0))
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False


# -- the output -----------------------------------------------------------------------------------------------------------


def out_look(path: str, model: ModelLook | None, data: str) -> OutLook:
    """Whether a dataset of `data` can go to `path`, how much room there is, and what lies there."""
    fact = doctor.path_fact(path)
    nearest = path
    while nearest != "/" and not os.path.isdir(nearest):
        nearest = os.path.dirname(nearest)
    room = os.statvfs(nearest)
    look = OutLook(
        path=path,
        exists=fact["exists"],
        is_dir=fact["is_dir"],
        parent=nearest,
        parent_exists=fact["parent_exists"],
        writable=fact["writable"],
        filesystem=filesystem_of(nearest),
        free=fact["free"],
        total=fact["total"],
        inodes=room.f_favail if room.f_files else None,
        error=fact["error"],
    )
    if (why := place.misplaced(path, model.fact.path if model is not None else "", data)) is not None:
        return dataclasses.replace(look, error=f"it {why}")
    if not look.is_dir:
        return look
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return dataclasses.replace(look, error=f"it cannot be listed: {error.strerror}")
    look = dataclasses.replace(look, names=tuple(names[:_SHOWN]))
    if os.path.exists(os.path.join(path, place.JOURNAL)):
        return dataclasses.replace(look, dataset=begun.dataset(path, model))
    return dataclasses.replace(look, foreign=place.foreign(path) or "")
