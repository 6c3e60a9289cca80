"""The SGLang server over HTTP."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx

from eagle3_remote.extract.errors import SampleFailure
from eagle3_remote.extract.facts import Model, Server, server_from
from eagle3_remote.server.apikey import header_for

_TIMEOUT = 30.0
_FRESH_TIMEOUT = 5.0
"""Seconds for the first question about settings; a busy server answers between two batches."""


class ServerAway(Exception):
    """No connection, or it broke: the request may be sent again when the server is back."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server counted in one prompt, and the token it chose where one was asked for."""

    prompt_tokens: int
    cached_tokens: int
    next_token: int | None = None


class Client:
    """One server. Requests of any number at a time; the caller keeps the budget.

    Args:
        url: where it is.
        extra_key: give each request a cache key of its own (its rid): its rows never come from the radix cache.
    """

    def __init__(self, url: str, *, extra_key: bool = False) -> None:
        self._extra_key = extra_key
        self.url = url
        self._key = _Key(url)
        self._http = self._connect()
        self._retired: list[httpx.AsyncClient] = []

    def _connect(self) -> httpx.AsyncClient:
        # trust_env: a proxy in the environment is for the world, not for a server on this box.
        # Expiry below SGLang's own keep-alive of 5 s: a connection that the server is closing is not used again.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2)
        return httpx.AsyncClient(
            base_url=self.url,
            auth=self._key,
            limits=limits,
            trust_env=False,
            timeout=httpx.Timeout(_TIMEOUT, connect=10, pool=None),
        )

    async def close(self) -> None:
        for http in (self._http, *self._retired):
            await http.aclose()

    async def facts(self, model: Model) -> Server:
        """Ask for length limits and the settings that matter.

        Raises:
            ServerAway: no answer.
            ExtractionError: the answer lacks what is needed.
        """
        info = await self._info()
        models = await self._json("/v1/models")
        server = server_from(info, models, model)
        return dataclasses.replace(server, shares_prefixes=server.shares_prefixes and not self._extra_key)

    async def _info(self) -> dict[str, Any]:
        """The server's settings.

        Up to 0.5.9 at least, the answer of the schedulers is not read before the first request was computed
        (``managers/tokenizer_communicator_mixin.py``: `get_internal_state` starts no handle loop), so that a server that
        has only just come up gives none. Its own health request, which no dump is made of, gets it going.
        """
        paths = ("/server_info", "/get_server_info")
        try:
            return await self._json(*paths, timeout=_FRESH_TIMEOUT)
        except ServerAway as away:
            if not isinstance(away.__cause__, httpx.ReadTimeout):
                raise
        with contextlib.suppress(httpx.TransportError):
            await self._http.get("/health_generate")
        return await self._json(*paths)

    async def _json(self, *paths: str, timeout: float = _TIMEOUT) -> dict[str, Any]:
        """The first of `paths` that the server knows (0.5.4 has only /get_server_info)."""
        for path in paths:
            try:
                answer = await self._http.get(path, timeout=httpx.Timeout(timeout, connect=10, pool=None))
            except httpx.TransportError as error:
                raise ServerAway(f"GET {path}: {_words(error)}") from error
            if answer.status_code == 404:
                continue
            if answer.status_code != 200:
                raise ServerAway(f"GET {path} answered {answer.status_code}")
            try:
                body = answer.json()
            except ValueError:
                raise ServerAway(f"GET {path} did not answer JSON") from None
            return body if isinstance(body, dict) else {}
        return {}

    async def healthy(self) -> bool:
        """Whether /health answers 200."""
        try:
            return (await self._http.get("/health")).status_code == 200
        except httpx.TransportError:
            return False

    async def prefill(self, rid: str, ids: Sequence[int], timeout: float, new_tokens: int = 0) -> Answer:
        """Send one prompt for prefill alone, or with the greedy choice of the next token (`new_tokens` 1).

        Raises:
            ServerAway: the server cannot be reached, or went away before it answered.
            SampleFailure: late (`timeout`), refused (`refused`), or an error answer (`server-error`).
        """
        body: dict[str, Any] = {
            "rid": rid,
            "input_ids": list(ids),
            "sampling_params": {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True},
        }
        if self._extra_key:
            body["extra_key"] = rid
        limits = httpx.Timeout(timeout, connect=10, pool=None)
        try:
            answer = await self._http.post("/generate", json=body, timeout=limits)
        except httpx.ReadTimeout:
            raise SampleFailure("timeout", f"no answer within {timeout:.0f} s") from None
        except httpx.TransportError as error:
            raise ServerAway(_words(error)) from None
        if answer.status_code == 503:
            raise ServerAway(f"the server answered 503: {answer.text[:200]}")
        if 400 <= answer.status_code < 500:
            raise SampleFailure("refused", f"the server answered {answer.status_code}: {answer.text[:500]}")
        try:
            body = answer.json()
            meta, chosen = body["meta_info"], body.get("output_ids") if new_tokens else None
            if meta.get("id", rid) != rid:
                self._retire()
                raise ServerAway(f"the answer is that of another request, {meta['id']}")
            return Answer(int(meta["prompt_tokens"]), int(meta["cached_tokens"]), int(chosen[0]) if chosen else None)
        except (ValueError, KeyError, TypeError, IndexError):
            raise SampleFailure(
                "server-error", f"the server answered {answer.status_code}: {answer.text[:500]}"
            ) from None

    def _retire(self) -> None:
        """Use other connections from now on: somebody answered twice, and every answer on that one belongs to the request before."""
        self._retired.append(self._http)
        self._http = self._connect()

    async def abort(self, rid: str) -> None:
        """Ask the server to drop a request that is no longer waited for."""
        with contextlib.suppress(httpx.TransportError):
            await self._http.post("/abort_request", json={"rid": rid})


class _Key(httpx.Auth):
    """Adds the server's key to each request. It is looked up again after a request without an answer: another server may have the
    port by now; and when the server refuses it: a server may come back with another one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._header: dict[str, str] | None = None

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """As httpx calls it."""
        if self._header is None:
            self._header = header_for(self._url)
        sent, answer = self._header, None
        request.headers.update(sent)
        try:
            answer = yield request
        finally:
            if answer is None:
                self._header = None
        if answer.status_code == 401:
            self._header = header_for(self._url)
            if self._header and self._header != sent:
                request.headers.update(self._header)
                yield request


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
