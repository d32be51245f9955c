"""The HTTPS server of the admission webhook."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web

from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.namespaces import get_runtime_policy
from rlt_operator.webhook.review import get_runtime_name, is_review, needs_policy, reject_deep_nesting, review
from rlt_operator.webhook.tls import Tls

READ_TIMEOUT_S = 2.0
"""Timeout to read the namespace and the RLRuntime. After it the job is validated without what was not read; the
operator validates it again before it accepts it."""
MAX_REVIEW_BYTES = 7 * 2**19
"""3.5 MiB. A review holds the new and the old object, of which etcd stores at most 1.5 MiB each."""
MAX_REVIEWS = 4
"""Number of reviews in memory at the same time."""
LARGE_REVIEW_BYTES = 2**18
"""Larger reviews follow one another: parsed, a hostile one has up to 20 times the size of its text."""
MAX_WAITING = 128
"""Number of reviews that wait, unread, for one of them. Further ones get status 503."""
BODY_TIMEOUT_S = 3.0
"""Timeout to receive a review."""
KEEP_ALIVE_S = 120.0
"""Longer than Go's idle timeout of 90 s, so that the API server does not reuse a connection while it closes."""

log = logging.getLogger("rlt_operator.webhook")


class Turns:
    """Admits MAX_REVIEWS reviews at the same time, of which one is large. Up to MAX_WAITING wait."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_REVIEWS)
        self._large = asyncio.Lock()
        self._waiting = 0

    @property
    def are_taken(self) -> bool:
        """Whether as many reviews wait as may."""
        return self._waiting >= MAX_WAITING

    @contextlib.asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Wait for a turn of a review with this number of bytes."""
        async with contextlib.AsyncExitStack() as stack:
            self._waiting += 1
            try:
                if size > LARGE_REVIEW_BYTES:
                    await stack.enter_async_context(self._large)
                await stack.enter_async_context(self._slots)
            finally:
                self._waiting -= 1
            yield


async def serve(port: int, tls: Tls, api: KubernetesApi, runtimes: RuntimePolicy) -> web.AppRunner:
    """Serve POST /validate on all addresses. `runtimes` is the policy of the cluster for the RLRuntimes of jobs."""
    turns = Turns()

    async def validate(request: web.Request) -> web.Response:
        assert request.transport
        if not tls.admits(request.transport.get_extra_info("ssl_object")):
            return _refuse(403, "the client certificate has another name than --client-name")
        size = MAX_REVIEW_BYTES if request.content_length is None else request.content_length
        if size > MAX_REVIEW_BYTES:
            return _refuse(413, f"a review of {size} bytes is above the maximum of {MAX_REVIEW_BYTES}")
        if turns.are_taken:
            return _refuse(503, f"{MAX_WAITING} reviews wait already: retry in a second")
        async with turns.take(size):
            try:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    body = await request.read()
            except TimeoutError:
                return _refuse(408, f"the review was not received within {BODY_TIMEOUT_S:g} s")
            return await _answer(body, api, runtimes)

    app = web.Application(client_max_size=MAX_REVIEW_BYTES)
    app.add_routes([web.post("/validate", validate)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_S)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=tls.context).start()
    return runner


async def _answer(body: bytes, api: KubernetesApi, runtimes: RuntimePolicy) -> web.Response:
    """The response to a review. The event loop answers others, and the probes, while a thread parses and validates.

    An error is returned: an exception would keep the variables of this function, and with them the parsed review.
    """
    try:
        admission = await asyncio.to_thread(json.loads, body)
    except RecursionError:
        rejection = reject_deep_nesting(body)
        return web.json_response(rejection) if rejection else _refuse(400, "the body nests too deeply")
    except ValueError:
        return _refuse(400, "the body is not JSON")
    if not is_review(admission):
        return _refuse(400, "the body is not an AdmissionReview of a job or a runtime")
    policy = await _get_policy(api, admission, runtimes)
    name = get_runtime_name(admission, policy)
    runtime = await _get_runtime(api, name) if name else {}
    answer = await asyncio.to_thread(review, admission, runtime, policy)
    metrics.REVIEWS.labels(admission["request"]["operation"], _get_outcome(answer)).inc()
    return web.json_response(answer)


def _refuse(status: int, message: str) -> web.Response:
    metrics.REVIEWS_REFUSED.labels(code=status).inc()
    headers = {"Retry-After": "1"} if status == 503 else {}
    return web.Response(status=status, text=f"{message}\n", headers=headers)


async def _get_policy(api: KubernetesApi, admission: dict[str, Any], runtimes: RuntimePolicy) -> RuntimePolicy:
    if not needs_policy(admission):
        return runtimes
    namespace = admission["request"].get("namespace", "")
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return get_runtime_policy(await api.get(api_paths.namespace(namespace)), runtimes)
    except (ApiError, TimeoutError) as error:
        log.warning("validating the job without the labels of namespace %s, which cannot be read: %s", namespace, error)
        return RuntimePolicy(unknown=True)


async def _get_runtime(api: KubernetesApi, name: str) -> Mapping[str, Mapping[str, Any] | None]:
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            manifest = await api.get(api_paths.runtime(name))
    except (ApiError, TimeoutError) as error:
        log.warning("validating the job without RLRuntime %s, which cannot be read: %s", name, error)
        return {}
    return {name: manifest["spec"] if manifest else None}


def _get_outcome(answer: dict[str, Any]) -> str:
    return "allowed" if answer["response"]["allowed"] else "rejected"
