"""One export from its request to its last file: what is there is left alone, what is missing is written in row order."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import errno
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

from eagle3_remote.export import formats
from eagle3_remote.export.errors import ExportError, Stopped
from eagle3_remote.export.norm import FinalNorm, read_norm
from eagle3_remote.export.source import Row, Source, arrow_files
from eagle3_remote.export.target import Target, remove
from eagle3_remote.extract import dataset as ds
from eagle3_remote.extract import space
from eagle3_remote.extract.collect import is_full, sync_dir
from eagle3_remote.extract.facts import read_model
from eagle3_remote.extract.statesfile import file_crc
from eagle3_remote.job.work import Progress
from eagle3_remote.protocol import ExportSpec

THREADS = max(2, min(8, (os.cpu_count() or 2) // 2))
"""Writers at once. Each holds up to three times its sample; with the norm or a quantisation it is the cores that limit."""
_POLL = 2.0
"""Seconds between two looks at a full disk."""
_OTHER_FILES = 64
"""Files and folders that belong to all samples together."""
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)
"""Why a hard link is not possible here: another file system, another owner, too many, or none at all."""
_NO_ROW = -1
LINKED, COPIED = "linked", "copied"


class Export:
    """One request, checked against its source and its target.

    Raises:
        ExportError: it cannot be; the text says why.
    """

    def __init__(self, spec: ExportSpec, progress: Progress) -> None:
        self._progress = progress
        self.form = formats.FORMATS.get(spec.format) or _no_format(spec.format)
        self.source = Source(spec.dataset)
        source = self.source
        final = formats.check(self.form, source.boundaries, spec.final, source.final, spec.dtype)
        self.norm: FinalNorm | None = None
        if final != source.final:
            self.norm = read_norm(model_of(source, spec.model))
        self.facts = formats.Facts(
            boundaries=source.boundaries,
            num_layers=source.num_layers,
            hidden_size=source.hidden_size,
            final=final,
            dtype=spec.dtype or source.dtype,
            model=spec.model or source.model,
            data=str(source.manifest["data"]["path"]),
            max_seq_len=int(source.manifest.get("max_seq_len") or 0),
        )
        self.as_stored = self.form.name == "speculators" and self.facts.dtype == source.dtype
        progress.say("Reading the journal of the dataset.")
        request = {"format": self.form.name, "final": final, "dtype": self.facts.dtype, "source": source.fingerprint()}
        self.target = Target(spec.to, source.dataset.root, request)
        self.done = 0
        self.counts = dict.fromkeys((LINKED, COPIED), 0)

    def run(self) -> str:
        """Write what is missing; the sentence that says what there is now.

        Raises:
            ExportError: the source is damaged or the target cannot be written.
            Stopped: asked to stop.
        """
        left, tokens = self._look()
        self._check_space(left, tokens)
        if left:
            self._progress.say(f"Writing {left} samples as {self.form.name}.")
            for size in self._written():
                self.done += 1
                if not self._progress.moved(1, size):
                    raise Stopped
        self._progress.say("Writing what belongs to all samples together.")
        _sync_folders(self.target.root)
        self._finish()
        return self._sentence(left)

    def _look(self) -> tuple[int, int]:
        """(samples, tokens) that are still to be written."""
        rows = tokens = left = left_tokens = 0
        for row in self.source.rows():
            rows, tokens = rows + 1, tokens + row.tokens
            if not self._is_there(row):
                left, left_tokens = left + 1, left_tokens + row.tokens
        self.samples, self.tokens, self.done = rows, tokens, rows - left
        total = formats.size(self.form, self.facts, tokens, rows)
        self._progress.say(
            f"{rows} samples, {tokens} tokens, {space.gigabytes(total)}; {self.done} are there already.",
            total=rows,
            bytes_total=total,
        )
        self._progress.moved(self.done, total - formats.size(self.form, self.facts, left_tokens, left))
        return left, left_tokens

    def _is_there(self, row: Row) -> bool:
        """A sample has its name only when it was whole and on disk; a file that was cut since does not count."""
        path = os.path.join(self.target.root, self.form.place(row.row))
        try:
            if self.form.folder:
                return os.path.exists(os.path.join(path, "done"))
            size = os.stat(path).st_size
        except OSError:
            return False
        return size == row.bytes if self.as_stored else size > formats.payload(self.form, self.facts, row.tokens)

    def _check_space(self, left: int, tokens: int) -> None:
        if not left:
            return
        links = self.as_stored and self._can_link()
        need = 0 if links else formats.size(self.form, self.facts, tokens, left)
        if self.form.name == "speculators":
            need += 0 if links else 2 * 8 * self.tokens  # the Arrow rows
        files = 0 if links else left * formats.files_each(self.form, self.facts)
        refused, warned = space.judge(need, files + _OTHER_FILES, space.room(self.target.root), self.target.root)
        if refused:
            raise ExportError(refused.replace("the dataset", "the export"))
        if warned:
            self._progress.say(warned.replace("the dataset", "the export"))

    def _can_link(self) -> bool:
        """Whether this file system takes a hard link to the source's files."""
        first = next(self.source.rows())
        tmp = self.target.tmp(first.row)
        try:
            os.link(first.path, tmp)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False
        os.unlink(tmp)
        return True

    def _written(self) -> Iterator[int]:
        """Write in parallel, a few samples at a time; the size of each, in order, when it lies under its name."""
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            waiting: collections.deque[tuple[Row, concurrent.futures.Future[int]]] = collections.deque()
            try:
                for row in self.source.samples():
                    if self._is_there(row):
                        continue
                    waiting.append((row, pool.submit(self._write, row)))
                    if len(waiting) > THREADS:
                        yield self._wait(pool, *waiting.popleft())
                while waiting:
                    yield self._wait(pool, *waiting.popleft())
            finally:
                for _, future in waiting:
                    future.cancel()

    def _wait(self, pool: concurrent.futures.Executor, row: Row, future: concurrent.futures.Future[int]) -> int:
        """A full disk is waited for.

        Raises:
            ExportError: the sample cannot be written for another reason.
            Stopped: asked to stop while waiting.
        """
        while True:
            try:
                return future.result()
            except OSError as error:
                if not is_full(error):
                    raise ExportError(f"Row {row.row} cannot be written to {self.target.root}: {error}.") from None
            at_once = min(THREADS, self.samples - self.done)
            self._wait_for_room(at_once * formats.size(self.form, self.facts, row.tokens, 1))
            future = pool.submit(self._write, row)

    def _wait_for_room(self, need: int) -> None:
        self._progress.say(f"Paused: {self.target.root} is full. It goes on by itself when there is space.")
        while True:
            if self._progress.stop_asked:
                raise Stopped
            time.sleep(_POLL)
            if space.room(self.target.root).free >= need:
                self._progress.say(f"Writing the rest as {self.form.name}.")
                return

    def _write(self, row: Row) -> int:
        """Write one sample under its name; its size.

        Raises:
            OSError: no space, for example; nothing lies under the name.
        """
        final = self.target.path(self.form.place(row.row))
        tmp = self.target.tmp(row.row)
        if self.as_stored:
            self._link(row, tmp)
        else:
            self._convert(row, tmp)
        os.rename(tmp, final)
        return formats.size(self.form, self.facts, row.tokens, 1)

    def _link(self, row: Row, tmp: str) -> None:
        linked = link_or_copy(row.path, tmp)
        self.counts[LINKED if linked else COPIED] += 1
        if os.stat(tmp).st_size != row.bytes or not (linked or file_crc(tmp) == row.crc32):
            raise ExportError(f"The bytes of {row.path} are not those that were stored: see 'verify'.")

    def _convert(self, row: Row, tmp: str) -> None:
        import torch

        ids, states = self.source.states(row)
        dtype = torch.float32 if self.facts.dtype == formats.FP8 else getattr(torch, self.facts.dtype)
        if self.norm is not None:
            states = torch.cat([states[:, :-1].to(dtype), self.norm(states[:, -1]).to(dtype)[:, None]], dim=1)
        else:
            states = states.to(dtype)
        if self.facts.dtype != self.source.dtype and not bool(torch.isfinite(states).all()):
            raise ExportError(
                f"Row {row.row} holds values that {self.facts.dtype} cannot: choose another --dtype (bfloat16 has the range)."
            )
        mask = torch.tensor(row.mask)
        sample = formats.Sample(row.row, row.name, ids.clone(), mask, states)
        with _full_disk_as_oserror(self.target.root, formats.size(self.form, self.facts, row.tokens, 1)):
            self.form.write(tmp, sample, self.facts)

    def _finish(self) -> None:
        """What stands beside the samples, and the manifest's last word."""
        if self.form.name == "speculators":
            self._take_arrow()
        elif self.form.name == "speculators-v1":
            lengths = {str(row.row): row.tokens for row in self.source.rows()}
            self.target.put_json("sample_lengths.json", lengths)
            self.target.put_json("data_config.json", self._v1_config())
        sync_dir(self.target.root)
        self.target.put(
            complete=True,
            samples=self.samples,
            tokens=self.tokens,
            readers=self.form.readers,
            layer_ids={self.form.ids_name: list(self.form.layer_ids(self.facts))},
            facts=dataclasses.asdict(self.facts),
            norm=None if self.norm is None else {"weight": self.norm.name, "epsilon": self.norm.epsilon},
            source={"path": self.source.dataset.root, "model": self.source.manifest["model"]},
        )

    def _take_arrow(self) -> None:
        """The Arrow rows are the same; ``state.json``, which makes it a dataset, comes last."""
        for name in (*arrow_files(self.source.dataset.root), ds.INFO_FILE, ds.STATE_FILE):
            tmp = self.target.tmp(_NO_ROW)
            link_or_copy(os.path.join(self.source.dataset.root, name), tmp)
            os.replace(tmp, self.target.path(name))
            remove(tmp)  # two names of one file are left as they are by a rename

    def _v1_config(self) -> dict[str, Any]:
        """``data_config.json`` as speculators 0.4.0.1 config_generator.py lays it out; loaders do not read it."""
        facts = self.facts
        return {
            "version": "2.0",
            "model": {"target_model_path": facts.model, "hidden_size": facts.hidden_size},
            "data": {"train_data_path": facts.data, "seq_length": facts.max_seq_len, "num_samples": self.samples},
            "hidden_states": {
                "layer_ids": list(self.form.layer_ids(facts)),
                "description": "Layers selected for EAGLE3 fusion and target logits",
            },
            "format": {"file_pattern": "data_{idx}.pt", "dtype": facts.dtype, "num_tensors": len(facts.boundaries) + 1},
        }

    def _sentence(self, left: int) -> str:
        facts = self.facts
        if not left:
            text = f"All {self.samples} samples were there already as {self.form.name} in {self.target.root}"
        else:
            text = f"{self.samples} samples lie as {self.form.name} in {self.target.root}"
        if self.counts[LINKED]:
            text += f", {self.counts[LINKED]} of them as hard links that take no space"
        ids = ", ".join(map(str, self.form.layer_ids(facts)))
        text += f". Read by {self.form.readers}. Its {self.form.ids_name}: {ids}; final state {facts.final}-norm; {facts.dtype}."
        return text


def link_or_copy(source: str, tmp: str) -> bool:
    """Give a file a second name where that is possible (True), else copy it to disk.

    Raises:
        OSError: neither worked.
    """
    try:
        os.link(source, tmp)
        return True
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    shutil.copyfile(source, tmp)
    with open(tmp, "rb") as file:
        os.fsync(file.fileno())
    return False


@contextlib.contextmanager
def _full_disk_as_oserror(root: str, need: int) -> Iterator[None]:
    """torch and safetensors have errors of their own for a write that failed: where there is no room, that is why."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        if isinstance(error, OSError) or space.room(root).free >= need:
            raise
        raise OSError(errno.ENOSPC, f"no space in {root} ({error})") from None


def model_of(source: Source, named: str) -> str:
    """Where the target model lies, if it is the one that the dataset was made with.

    Raises:
        ExportError: it is another one, or it is gone.
    """
    path = os.path.abspath(named) if named else source.model
    if not os.path.isdir(path):
        raise ExportError(f"The model {path} is not on this box any more: name where it lies now with --model.")
    if read_model(path).fingerprint != source.model_fingerprint:
        raise ExportError(
            f"{path} is not the model that {source.dataset.root} was made with (config.json or weights differ): name that one with --model."
        )
    return path


def _no_format(name: str) -> formats.Format:
    raise ExportError(f"There is no format {name!r}: choose one of {', '.join(formats.FORMATS)}.")


def _sync_folders(root: str) -> None:
    """Make the names of all samples durable before the manifest says that they are there."""
    for folder, names, _ in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".")]
        sync_dir(folder)
