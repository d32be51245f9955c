"""The webhook's HTTPS port. An exception results in status 500, to which the API server applies the failurePolicy."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from cryptography import x509

from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.namespaces import get_runtime_policy
from rlt_operator.webhook.review import get_runtime_name, needs_policy, reject_deep_nesting, review

READ_TIMEOUT_S = 2.0
"""Timeout to read the namespace and the RLRuntime. After it the job is validated without what was not read; the
operator validates it again before it accepts it."""
MAX_REVIEW_LENGTH = 16 * 2**20
"""Bytes. A review holds the new and the old object, each at most 3 MiB."""
KEEP_ALIVE_S = 120.0
"""Longer than Go's idle timeout of 90 s, so that the API server does not reuse a connection while it closes."""

log = logging.getLogger("rlt_operator.webhook")


class Tls:
    """TLS 1.3 of the server. Its certificate can be replaced while it serves."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.has_certificate = False

    def load(self, certificate: str, key: str) -> None:
        """Use this certificate and key for new connections (PEM). Raises ssl.SSLError if they do not match."""
        # Python loads them from files only. A file in memory keeps the private key off the disk.
        descriptor = os.memfd_create("certificate")
        with open(descriptor, "w") as file:
            file.write(f"{key}\n{certificate}")
            file.flush()
            self.context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        self.has_certificate = True
        expiry = x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
        metrics.CERTIFICATE_EXPIRY.set(expiry.timestamp())


async def serve(port: int, tls: Tls, api: KubernetesApi, runtimes: RuntimePolicy) -> web.AppRunner:
    """Serve POST /validate on all addresses. `runtimes` is the policy of the cluster for the RLRuntimes of jobs."""

    async def validate(request: web.Request) -> web.Response:
        text = await request.text()
        try:
            admission = json.loads(text)
        except RecursionError:
            return web.json_response(reject_deep_nesting(text))
        policy = await _get_policy(api, admission, runtimes)
        name = get_runtime_name(admission, policy)
        answer = review(admission, await _get_runtime(api, name) if name else {}, policy)
        metrics.REVIEWS.labels(admission["request"]["operation"], _get_outcome(answer)).inc()
        return web.json_response(answer)

    app = web.Application(client_max_size=MAX_REVIEW_LENGTH)
    app.add_routes([web.post("/validate", validate)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_S)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=tls.context).start()
    return runner


async def _get_policy(api: KubernetesApi, admission: dict[str, Any], runtimes: RuntimePolicy) -> RuntimePolicy:
    if not needs_policy(admission):
        return runtimes
    namespace = admission["request"]["namespace"]
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
