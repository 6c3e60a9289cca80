"""One request through the patched server, checked end to end: tokens sent = rows dumped, nothing cached."""

from __future__ import annotations

import dataclasses
import http.client
import json
import math
import os
import secrets
import shutil
import struct
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from eagle3_patch import layout
from eagle3_remote.files import read_json
from eagle3_remote.protocol import PatchMarker, ProbeReport
from eagle3_remote.rpc import ServerFault
from eagle3_remote.server.health import opener

ANSWER_TIMEOUT = 180.0
"""Seconds for the answer: the first batch may compile kernels."""
DUMP_TIMEOUT = 60.0
"""Seconds from the answer to the complete dump."""
_MAX_HEADER = 1 << 20


def run(
    url: str, dump_dir: Path, marker: PatchMarker, vocab_size: int, tokens: int, *, extra_key: bool = False
) -> ProbeReport:
    """Send one prompt of `tokens` ids and check what the patch dumped for it. The dump is removed again.

    Args:
        extra_key: send it twice, each time under a cache key of its own: what the second gives did not come from the
            radix cache only if the keys keep the two apart.

    Raises:
        ServerFault: the server did not answer, or refused the request.
    """
    report = _once(url, dump_dir, marker, vocab_size, tokens, extra_key)
    if extra_key and report.ok:
        report = _once(url, dump_dir, marker, vocab_size, tokens, extra_key)
        if report.ok:
            text = report.sentence.rstrip(".") + " (the same prompt twice, each under an extra_key of its own)."
            report = dataclasses.replace(report, sentence=text)
    return report


def learn(url: str, dump_dir: Path, tp_size: int) -> PatchMarker:
    """What the patch of a server whose log cannot be read says of itself in the dump of one short request.

    Raises:
        ServerFault: the server did not answer or refused the request, or no whole dump appeared.
    """
    rid = _rid()
    folder = dump_dir / layout.folder_name(rid)
    try:
        _generate(url, rid, [1, 2, 3, 4, 5], extra_key=True)  # a server that does not use the key ignores it
        problem = _wait(folder)
        if problem is not None:
            raise ServerFault(f"The server at {url} answered, but {problem}.")
        meta = read_json(folder / layout.META_FILE) or {}
        return PatchMarker(
            patch=str(meta["patch_version"]),
            sglang=str(meta["sglang_version"]),
            model_class=str(meta["model_class"]),
            num_layers=int(meta["num_layers"]),
            hidden_size=int(meta["hidden_size"]),
            boundaries=tuple(int(one) for one in meta["boundaries"]),
            final=str(meta["final"]),
            tp_rank=0,
            tp_size=tp_size,
            writes=True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ServerFault(
            f"The dump of the server at {url} lacks facts ({error!r}): is its patch of another release?"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rid() -> str:
    return f"{layout.RID_PREFIX}probe-{secrets.token_hex(4)}"


def _once(url: str, dump_dir: Path, marker: PatchMarker, vocab_size: int, tokens: int, extra_key: bool) -> ProbeReport:
    rid = _rid()
    ids = [(7 + 13 * place) % vocab_size for place in range(tokens)]
    folder = dump_dir / layout.folder_name(rid)
    try:
        meta = _generate(url, rid, ids, extra_key)
        return _check(folder, ids, meta, marker)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _generate(url: str, rid: str, ids: list[int], extra_key: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rid": rid,
        "input_ids": ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
    }
    if extra_key:
        body["extra_key"] = rid
    request = urllib.request.Request(
        f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with opener().open(request, timeout=ANSWER_TIMEOUT) as answer:
            meta = json.load(answer)["meta_info"]
    except urllib.error.HTTPError as error:
        said = error.read(500).decode("utf-8", "replace")
        raise ServerFault(f"The server at {url} refused the probe request ({error.code}): {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise ServerFault(f"The server at {url} did not answer the probe request: {error}. See its log.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ServerFault(f"The server at {url} answered the probe with something else than SGLang's JSON.") from error
    if not isinstance(meta, dict):
        raise ServerFault(f"The server at {url} answered the probe without meta_info.")
    return meta


def _check(folder: Path, ids: list[int], meta: dict[str, Any], marker: PatchMarker) -> ProbeReport:
    sent, prompt, cached = len(ids), _number(meta, "prompt_tokens"), _number(meta, "cached_tokens")
    problem = _wait(folder)
    rows = layers = 0
    if problem is None:
        try:
            rows, layers, problem = _read(folder, ids, marker)
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            problem = f"its dump cannot be read: {error}"
    wanted = len(marker.boundaries) + 1
    if cached != 0:
        problem = f"{cached} of its tokens came from the radix cache and were not computed: restart with it off"
    elif problem is None and not sent == prompt == rows:
        problem = f"{sent} tokens were sent, the server counted {prompt}, {rows} rows were dumped"
    elif problem is None and layers != wanted:
        problem = f"{layers} states a token were dumped, {wanted} are configured"
    if problem is None:
        sentence = f"Probe: {sent} tokens sent, {rows} rows dumped, 0 cached, {layers} states a token."
    else:
        sentence = f"The probe of {sent} tokens failed: {problem}."
    return ProbeReport(
        ok=problem is None,
        sent=sent,
        prompt_tokens=prompt,
        dumped=rows,
        cached=cached,
        layers=layers,
        sentence=sentence,
    )


def _number(meta: dict[str, Any], key: str) -> int:
    value = meta.get(key)
    return value if isinstance(value, int) else -1


def _wait(folder: Path) -> str | None:
    """Wait for the folder to be complete; what is wrong, or `None`."""
    deadline = time.monotonic() + DUMP_TIMEOUT
    while not (folder / layout.DONE_FILE).exists():
        if (folder / layout.ERROR_FILE).exists():
            reason = (read_json(folder / layout.ERROR_FILE) or {}).get("reason", "no reason is given")
            return f"the patch could not dump it: {reason}"
        if time.monotonic() > deadline:
            return f"no dump appeared in {folder.parent} within {DUMP_TIMEOUT:.0f} s (is the patch in the server?)"
        time.sleep(0.02)
    return None


def _read(folder: Path, ids: list[int], marker: PatchMarker) -> tuple[int, int, str | None]:
    """(rows, states a row, what is wrong) of one complete dump folder."""
    meta = read_json(folder / layout.META_FILE) or {}
    path = folder / layout.STATES_FILE
    if not path.exists():
        return _number(meta, "tokens"), len(meta["boundaries"]) + 1, None  # the pt layout: torch would be needed
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _MAX_HEADER:
            raise ValueError(f"its header claims {length} bytes")
        header = json.loads(file.read(length))
        rows, layers, hidden = header["hidden_states"]["shape"]
        first, last = header["token_ids"]["data_offsets"]
        file.seek(8 + length + first)
        raw = file.read(last - first)
    end = max(header[name]["data_offsets"][1] for name in ("hidden_states", "token_ids"))
    if os.path.getsize(path) != 8 + length + end:
        return rows, layers, f"{path.name} is cut short"
    if math.prod(header["token_ids"]["shape"]) * 8 != len(raw) or list(struct.unpack(f"<{len(raw) // 8}q", raw)) != ids:
        return rows, layers, "the dumped token ids are not the ones that were sent"
    if (
        hidden != marker.hidden_size
        or _number(meta, "tokens") != rows
        or tuple(meta["boundaries"]) != marker.boundaries
    ):
        return rows, layers, "the dump's facts differ from the server's marker line"
    return rows, layers, None
