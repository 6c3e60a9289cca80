"""What a running SGLang server says of its settings over HTTP, and what of it stands in an extraction's way."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from eagle3_remote.server.health import opener
from eagle3_remote.server.launch import PlanError, Version, parse_version

INFO_PATHS = ("/server_info", "/get_server_info")
"""Newest first: 0.5.4 knows only the second (``http_server.py``)."""
INFO_TIMEOUT = 4.0
"""Seconds; the answer comes from the scheduler, so a hung one gives none."""
EXTRA_KEY_SINCE: Version = (0, 5, 11)
"""``/generate`` takes ``extra_key`` from 0.5.4 on, but up to 0.5.10.post1 the scheduler makes its request without it
(``managers/scheduler.py``: ``extra_key=recv_req.extra_key`` is there from 0.5.11), so that it separates nothing."""
SETTINGS = (
    "tp_size",
    "dp_size",
    "pp_size",
    "nnodes",
    "enable_dp_attention",
    "disable_radix_cache",
    "chunked_prefill_size",
    "max_total_num_tokens",
    "attention_backend",
    "dtype",
    "quantization",
    "speculative_algorithm",
    "enable_hierarchical_cache",
    "enable_metrics",
    "served_model_name",
)
"""ServerArgs that matter to who looks for a server to extract through. Names of 0.5.4 to 0.5.23."""
_OTHER_CACHES = {
    "hicache_storage_backend": "a storage backend of the hierarchical cache",
    "enable_lmcache": "LMCache",
    "enable_flexkv": "FlexKV",
    "enable_unified_cache_external_linker": "an external cache linker",
}
"""Caches that are looked up by token ids: whether each of them honours ``extra_key`` is not known."""


def ask_info(url: str, timeout: float = INFO_TIMEOUT) -> tuple[dict[str, Any], str]:
    """The server's settings, and why there are none where it gives none (a clause without a full stop)."""
    why = ""
    for path in INFO_PATHS:
        try:
            with opener().open(url + path, timeout=timeout) as answer:
                info = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                return (
                    {},
                    "it asks for an API key, and the one sent, if any, is not it: name the file that has it with --api-key-file",
                )
            why = f"GET {path} answered {error.code}"
            if error.code != 404:
                return {}, why
        except (OSError, http.client.HTTPException) as error:
            return {}, f"no answer from {url} ({getattr(error, 'reason', None) or error})"
        except ValueError:
            return {}, f"what answers at {url} is no SGLang server"
        else:
            if isinstance(info, dict) and "model_path" in info:
                return info, ""
            return {}, f"what answers at {url} is no SGLang server"
    return {}, why


def extra_key_works(version: str) -> bool:
    """Whether requests of their own ``extra_key`` are kept apart in the radix cache of this SGLang."""
    try:
        return parse_version(version) >= EXTRA_KEY_SINCE
    except PlanError:
        return False


def unfit_settings(info: Mapping[str, Any]) -> list[str]:
    """Why no extraction can go through a server with these settings; each a sentence."""
    reasons = []
    if info.get("speculative_algorithm"):
        reasons.append(f"Speculative decoding is on ({info['speculative_algorithm']}), which cuts the rows short.")
    if (info.get("nnodes") or 1) > 1:
        reasons.append(f"It runs on {info['nnodes']} machines; rows are collected from one.")
    if (info.get("pp_size") or 1) > 1:
        reasons.append(f"It is pipeline-parallel ({info['pp_size']} stages); only the last stage's layers are seen.")
    return reasons


def unfit_for_extra_key(info: Mapping[str, Any], version: str) -> str | None:
    """Why ``extra_key`` does not help on a server whose radix cache is on; `None`: it does."""
    if not extra_key_works(version):
        return (
            f"SGLang {version or 'of an unknown version'} takes extra_key and does not use it (0.5.11 and newer do): "
            "restart the server with the radix cache off."
        )
    for name, what in _OTHER_CACHES.items():
        if info.get(name):
            return f"Besides the radix cache it has {what}, which may not go by extra_key: restart it without caches."
    return None
