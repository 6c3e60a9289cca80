"""What the box told, in a few sentences each: is it good, what is wrong, and what to do. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from eagle3_console import units
from eagle3_console.judge import FAIL, OK, WARN, Finding, meant
from eagle3_console.plan import Plan
from eagle3_console.setup.draft import as_typed, listed
from eagle3_console.setup.stored import nothing_left
from eagle3_console.trainers import TRAINERS, unable_by_boundaries
from eagle3_remote.protocol import DataLook, Facts, Gauges, Looked, ModelLook, OutLook, PortFact

_NETWORK = ("nfs", "cifs", "smb", "ceph", "lustre", "gluster", "beegfs", "fuse.", "9p", "gpfs", "wekafs")
_SMALL_SHM = 1 << 30
_BUSY_GPU = 1 << 30
PYTHON = "Python"
"""What findings of the Python are about; the label of its field, too."""


def of_box(facts: Facts, box: Looked | None, plan: Plan) -> tuple[Finding, ...]:
    """GPUs, driver, Python, /dev/shm, memory and disks."""
    gauges = facts.gauges
    found = [_gpus(facts, box.driver if box is not None else "", plan), _python(facts, plan), _shm(facts, plan)]
    if gauges is not None:
        found.append(_memory(gauges))
    if box is not None and box.disks:
        rooms = [f"{disk.path} {units.gb(disk.free)} free of {units.gb(disk.total)}" for disk in box.disks[:4]]
        more = f", and {len(box.disks) - 4} more" if len(box.disks) > 4 else ""
        found.append(Finding(OK, "disks", ", ".join(rooms) + more))
    return tuple(found)


def _gpus(facts: Facts, driver: str, plan: Plan) -> Finding:
    gpus = facts.gauges.gpus if facts.gauges is not None else ()
    drives = f", driver {driver}" if driver else ""
    if not gpus:
        if plan.on_cpu():
            return Finding(WARN, "GPUs", "none is seen (nvidia-smi): the server runs on the CPU, which is slow.")
        return Finding(FAIL, "GPUs", f"none is seen (nvidia-smi){drives}.", "For the CPU: SGLang args --device cpu.")
    names = sorted({gpu.name for gpu in gpus})
    text = f"{len(gpus)} × {', '.join(names)}, {units.gib(gpus[0].memory_total)} each{drives}"
    held = [f"GPU {gpu.index} {units.gib(gpu.memory_used)}" for gpu in gpus if gpu.memory_used >= _BUSY_GPU]
    if held:
        return Finding(WARN, "GPUs", f"{text}; in use: {', '.join(held)}.", "End what holds them, or take others.")
    return Finding(OK, "GPUs", f"{text}, all free.")


def _python(facts: Facts, plan: Plan) -> Finding:
    chosen = next((one for one in facts.pythons if one.path == plan.python), None)
    if chosen is None and plan.python:
        return Finding(WARN, PYTHON, f"{plan.python} was not looked at yet.")
    if chosen is not None and (chosen.error or not chosen.sglang):
        why = f"cannot be started: {chosen.error}" if chosen.error else "has no SGLang"
        return Finding(FAIL, PYTHON, f"{chosen.path} {why}.", "Name the one that has it in the field Python.")
    if chosen is None:
        places = ", ".join(facts.looked_in[:6])
        cure = "Install SGLang there, or type the path of its Python into the field Python."
        return Finding(FAIL, PYTHON, f"none with SGLang was found (looked at {places}, …).", cure)
    if chosen.missing:
        cure = f"On the box: {chosen.path} -m pip install {' '.join(chosen.missing)}"
        return Finding(FAIL, PYTHON, f"{chosen.path} lacks {', '.join(chosen.missing)}.", cure)
    others = len([one for one in meant(facts) if one is not chosen])
    more = f"; {others} more with SGLang" if others else ""
    return Finding(OK, PYTHON, f"SGLang {chosen.sglang}, Python {chosen.version}: {chosen.path}{more}")


def _shm(facts: Facts, plan: Plan) -> Finding:
    text = f"{units.gb_and_gib(facts.shm_free)} free of {units.gb(facts.shm_total)}"
    if plan.dump_dir or facts.shm_free >= _SMALL_SHM:
        return Finding(OK, "/dev/shm", text)
    cure = "A container needs --ipc=host or a larger --shm-size; or let the dumps go to a fast disk (field Dumps)."
    return Finding(WARN, "/dev/shm", f"{text}: little for states on their way.", cure)


def _memory(gauges: Gauges) -> Finding:
    text = f"{units.gb(gauges.ram_available)} available of {units.gb(gauges.ram_total)}, {gauges.cpus} cores"
    if gauges.ram_available < 4 << 30:
        return Finding(WARN, "memory", f"{text}: little.", "End what holds it.")
    return Finding(OK, "memory", text)


def of_model(look: ModelLook, plan: Plan) -> tuple[Finding, ...]:
    """The model's folder."""
    fact = look.fact
    if not fact.exists:
        return (Finding(FAIL, "model", f"there is no folder {fact.path} on the box."),)
    if fact.error:
        if fact.error == "config.json is missing":
            return (Finding(FAIL, "model", "there is no config.json in this folder.", "Go on to the model's own."),)
        return (Finding(FAIL, "model", f"{fact.error}."),)
    if not fact.num_layers or not fact.hidden_size or not fact.vocab_size:
        return (Finding(FAIL, "model", "its config.json names no layers, hidden size or vocabulary."),)
    quantised = f", quantised ({look.quantisation})" if look.quantisation else ""
    text = (
        f"{fact.architecture or 'a model'}: {fact.num_layers} layers, hidden {units.number(fact.hidden_size)}, "
        f"vocabulary {units.number(fact.vocab_size)}, {fact.dtype or 'bfloat16'}{quantised}"
    )
    found = [Finding(OK, "model", text)]
    dummy = "dummy" in plan.server_args
    if look.missing_count and not dummy:
        names = ", ".join(look.missing[:2]) + (" …" if look.missing_count > 2 else "")
        found.append(
            Finding(
                FAIL,
                "weights",
                f"{look.missing_count} of {look.shards} files are missing or cut off: {names}.",
                "Finish the download.",
            )
        )
    elif not fact.weight_files and not dummy:
        found.append(Finding(FAIL, "weights", "there are no weight files in it.", "Finish the download."))
    elif not dummy:
        found.append(
            Finding(OK, "weights", f"{units.gb_and_gib(fact.weight_bytes)}, all {look.shards} files are whole")
        )
    return tuple(found)


def of_boundaries(look: ModelLook | None, plan: Plan, text: str) -> tuple[Finding, ...]:
    """Whether the model has the layers that are asked, in which order they are taken, and which trainer cannot use them.

    Args:
        text: the boundaries as they stand in the field.
    """
    layers = look.fact.num_layers if look is not None else 0
    if look is not None and layers and not look.boundaries and not plan.boundaries:
        return (Finding(FAIL, "layers", f"{layers} layers are too few for 2, N//2, N-3.", "Name others, like 1,2,3."),)
    if not plan.boundaries:
        return ()
    found = []
    if layers and (beyond := [one for one in plan.boundaries if one > layers]):
        what = f"{listed(beyond)} {'is' if len(beyond) == 1 else 'are'} asked and there are {layers} layers."
        found.append(Finding(FAIL, "layers", what, f"They go from 0 to {layers}."))
    if as_typed(text) != plan.boundaries:
        order = ",".join(map(str, plan.boundaries))
        found.append(Finding(OK, "order", f"they are stored in ascending order, as {order}"))
    return (*found, *_trainers(plan))


def _trainers(plan: Plan) -> list[Finding]:
    """A warning for each reason why some trainers cannot use these boundaries; others can."""
    reasons: dict[str, list[str]] = {}
    for one in TRAINERS:
        if why := unable_by_boundaries(one, plan.boundaries):
            reasons.setdefault(why, []).append(one.name.partition(";")[0])
    cure = "Where you train with another one, all is well; else name others, like the proposed ones."
    return [
        Finding(WARN, "trainers", f"not for {'; '.join(names)} ({why}).", cure if at == len(reasons) else "")
        for at, (why, names) in enumerate(reasons.items(), 1)
    ]


def of_python(box: Sequence[Finding], data: DataLook | None) -> tuple[Finding, ...]:
    """What is wrong with the Python: as `of_box` found it, else as the look at the data did; nothing to say while it is good."""
    wrong = tuple(one for one in box if one.what == PYTHON and one.level == FAIL)
    if wrong or data is None or not data.python_error:
        return wrong
    return (Finding(FAIL, PYTHON, data.python_error, "Name the one that has SGLang."),)


def of_port(port: int, box: Looked) -> tuple[Finding, ...]:
    """Whether somebody else holds the port; our own server gives it up when it is started again."""
    fact = port_fact(port, box)
    if fact is None or fact.free:
        return ()
    if fact.job:
        return (Finding(OK, "Port", f"{port} is held by our own server, which a start replaces ({fact.job})"),)
    return (Finding(FAIL, "Port", f"{port} is taken by {fact.holder}.", "End that, or choose another one."),)


def port_fact(port: int, box: Looked) -> PortFact | None:
    """What the box told of this port; `None`: it was not looked at yet."""
    return next((fact for fact in (box.asked, box.port) if fact is not None and fact.port == port), None)


def of_data(look: DataLook, model: ModelLook | None) -> tuple[Finding, ...]:
    """The input, and whether its ids are of this model's vocabulary."""
    if look.python_error:
        return (Finding(WARN, "data", "it was not looked at: the Python that would read it cannot.", "See Python."),)
    if look.error:
        return (Finding(FAIL, "data", look.error),)
    if not look.samples:
        return (
            Finding(
                FAIL,
                "data",
                f"no sample in it can be used: {look.first_bad}.",
                'Each one needs "input_ids", a list of token ids.',
            ),
        )
    about = "" if look.exact else "about "
    what = f"{look.files} {look.kind} files" if look.files > 1 else look.kind
    found = [
        Finding(
            OK,
            "data",
            f"{what}, {units.gb(look.bytes)}: {about}{units.number(look.samples)} samples, {about}"
            f"{units.number(look.tokens)} tokens, the longest seen {units.number(look.longest)}",
        )
    ]
    vocabulary = model.fact.vocab_size if model is not None else 0
    span = f"ids {units.number(look.lowest_id)} to {units.number(look.highest_id)}"
    if vocabulary and look.highest_id >= vocabulary:
        found.append(
            Finding(
                WARN,
                "ids",
                f"{span}, but the model's vocabulary ends at {units.number(vocabulary - 1)} (first above at {look.highest_at}).",
                "Such samples are refused: is it the data of this model?",
            )
        )
    elif vocabulary:
        found.append(Finding(OK, "ids", f"{span}, all of them in the vocabulary of {units.number(vocabulary)}"))
    if look.bad:
        found.append(
            Finding(
                WARN,
                "samples",
                f"{units.number(look.bad)} of {units.number(look.seen)} looked at cannot be used, the first {look.first_bad}.",
                "They are left out and listed in the report.",
            )
        )
    if look.without_mask:
        found.append(
            Finding(
                OK, "masks", f"{units.number(look.without_mask)} looked at have no loss_mask: all their tokens count"
            )
        )
    return tuple(found)


def of_output(look: OutLook, plan: Plan, other_data: bool = False) -> tuple[Finding, ...]:
    """Where the dataset goes, and what lies there already.

    Args:
        other_data: the dataset that lies there was made of other data.
    """
    if look.error:
        return (Finding(FAIL, "output", f"{look.error}."),)
    if not look.exists and not look.parent_exists:
        parent = os.path.dirname(look.path)
        return (
            Finding(FAIL, "output", f"there is no folder {parent} to make it in.", f"The nearest is {look.parent}."),
        )
    if look.exists and not look.is_dir:
        return (Finding(FAIL, "output", "a file of this name is there.", "Choose another name."),)
    if not look.writable:
        return (
            Finding(FAIL, "output", "this user may not write there.", "Change the folder's owner, or take another."),
        )
    if look.foreign:
        text = f"{look.foreign} lies there, which no extraction of ours wrote."
        return (Finding(FAIL, "output", text, "Choose another folder."),)
    network = look.filesystem.startswith(_NETWORK)
    slow = ", over the network: every file costs time there" if network else ""
    room = f"{units.gb_and_gib(look.free)} free of {units.gb(look.total)}, {look.filesystem or 'unknown file system'}{slow}"
    found = [Finding(WARN if network else OK, "output", room)]
    if look.dataset is not None:
        found += _dataset(look, plan, other_data)
    elif look.names:
        found.append(
            Finding(WARN, "inside", f"other things lie there: {', '.join(look.names[:3])}.", "They are left alone.")
        )
    elif not look.exists:
        found.append(Finding(OK, "inside", "the folder is made when the extraction starts"))
    return tuple(found)


def _dataset(look: OutLook, plan: Plan, other_data: bool) -> Sequence[Finding]:
    dataset = look.dataset
    assert dataset is not None
    done = f"{units.number(dataset.stored)} samples are stored"
    if dataset.same_model is False and dataset.stored:
        of = f" ({dataset.model})" if dataset.model else ""
        return [Finding(FAIL, "dataset", f"a dataset of another model{of} is there, {done}.", "Choose another folder.")]
    if dataset.writing:
        return [Finding(WARN, "dataset", f"an extraction is writing a dataset there now, {done}.")]
    if not dataset.stored:
        return [Finding(OK, "dataset", "one was begun there and nothing is stored yet: it begins anew")]
    if other_data:
        text = f"a dataset of other data is there ({dataset.data or 'which is not named'}), {done}."
        return [Finding(FAIL, "dataset", text, "Choose another folder, or that data.")]
    if differing(look, plan):
        cure = "The fields that differ say how; or choose another folder."
        return [Finding(WARN, "dataset", f"one was begun there with other settings, {done}.", cure)]
    every = f"all {units.number(dataset.samples)}" if dataset.samples else "all"
    few = plan.samples and not 0 < dataset.lines <= plan.samples
    asked = f"{'the first ' + units.number(plan.samples) if few else every} are asked"
    if nothing_left(dataset, plan.samples):
        cure = "Choose another folder for a new one" + (", or more Samples to go on with it." if few else ".")
        return [Finding(WARN, "dataset", f"one is there, {done} and {asked}: nothing is left to extract.", cure)]
    return [Finding(OK, "dataset", f"one was begun there, {done} and {asked}: it goes on with the rest")]


def differing(look: OutLook, plan: Plan) -> dict[str, Finding]:
    """Field -> what the dataset at the output was begun with, for each setting that is another one now."""
    dataset = look.dataset
    if dataset is None or not dataset.stored or dataset.same_model is False or dataset.writing:
        return {}
    begun = {
        "boundaries": (",".join(map(str, dataset.boundaries)), ",".join(map(str, plan.boundaries))),
        "final": (dataset.final, plan.final),
        "max_seq_len": (str(dataset.max_seq_len or "never"), str(plan.max_seq_len or "never")),
    }
    return {
        name: Finding(
            FAIL,
            "dataset",
            f"the dataset at the output was begun with {theirs}, not {mine or 'none'}.",
            "Empty this field to go on with it, or choose another Output.",
        )
        for name, (theirs, mine) in begun.items()
        if theirs and theirs != mine
    }
