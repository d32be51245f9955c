"""/metrics for clients with a token, against an API server that reviews tokens."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from rlt_core.kubernetes import reviews
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_core.kubernetes.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS, Reviews
from rlt_e2e.ports import free_port
from rlt_operator import secure_metrics

SCRAPER = "token-of-the-scraper"
OTHER = "token-of-another"


class ApiServer:
    """The two reviews of an API server, with two tokens, of which one may read /metrics."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.is_down = False

    async def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        self.requests[path] += 1
        if self.is_down:
            raise ApiError(0, "no route to host")
        spec = manifest["spec"]
        if path == TOKEN_REVIEWS:
            known = spec["token"] in (SCRAPER, OTHER)
            return {"status": {"authenticated": known, "user": {"username": spec["token"]}}}
        assert path == ACCESS_REVIEWS
        asked = spec["nonResourceAttributes"]
        allowed = spec["user"] == SCRAPER and asked == {"verb": "get", "path": "/metrics"}
        return {"status": {"allowed": allowed}}


@contextlib.asynccontextmanager
async def served(api: ApiServer) -> AsyncIterator[str]:
    port = free_port()
    runner = await secure_metrics.serve(port, Reviews(cast(KubernetesApi, api)))
    try:
        yield f"https://127.0.0.1:{port}/metrics"
    finally:
        await runner.cleanup()


async def fetch(url: str, token: str | None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as response:
        return response.status, await response.text()


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("unknown", 401), (OTHER, 403), (SCRAPER, 200)])
async def test_only_an_account_with_the_verb_get_reads_the_metrics(token: str | None, status: int) -> None:
    async with served(ApiServer()) as url:
        found, text = await fetch(url, token)
        assert found == status
        assert ("rlt_operator_leader" in text) == (status == 200)


async def test_a_rejected_token_is_reviewed_once() -> None:
    api = ApiServer()
    async with served(api) as url:
        for _ in range(5):
            assert (await fetch(url, "unknown"))[0] == 401
    assert api.requests == {TOKEN_REVIEWS: 1}


async def test_unknown_tokens_are_limited_and_a_known_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiServer()
    async with served(api) as url:
        assert (await fetch(url, SCRAPER))[0] == 200
        now = time.monotonic()
        monkeypatch.setattr("time.monotonic", lambda: now)  # the budget does not grow
        found = Counter([(await fetch(url, f"unknown-{number}"))[0] for number in range(30)])
        assert 0 < found[401] <= reviews.UNKNOWN_PER_S
        assert found[429] == 30 - found[401]
        monkeypatch.setattr(reviews, "CACHE_S", 0.0)
        assert (await fetch(url, SCRAPER))[0] == 200


async def test_nothing_is_shown_while_the_api_server_cannot_check() -> None:
    api = ApiServer()
    api.is_down = True
    async with served(api) as url:
        assert await fetch(url, SCRAPER) == (503, "the API server cannot check the token: retry later\n")
