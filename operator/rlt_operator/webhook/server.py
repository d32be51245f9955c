"""The webhook's HTTPS port. Whatever fails here is answered 500, and the API server goes by the failurePolicy."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator import metrics
from rlt_operator.webhook.review import review, runtime_name, too_deep

RUNTIME_S = 2.0
"""So long the API server may take to give the runtime; without it the job is validated by itself."""
MAX_REVIEW_LENGTH = 16 * 2**20
"""Bytes: twice what the API server takes as one object (3 MiB), and room."""
KEEP_ALIVE_S = 120.0
"""Longer than Go's 90 s, so that no connection ends while the API server takes it up again."""

log = logging.getLogger("rlt_operator.webhook")


class Tls:
    """The server's side of TLS 1.3, whose certificate can be replaced while it serves."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.has_certificate = False

    def show(self, certificate: str, key: str) -> None:
        """From now on, to new connections (PEM). Raises ssl.SSLError if the two do not belong together."""
        # Python loads them from files only: one in memory, for a private key has no business on a disk.
        descriptor = os.memfd_create("certificate")
        with open(descriptor, "w") as file:
            file.write(f"{key}\n{certificate}")
            file.flush()
            self.context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        self.has_certificate = True


async def serve(port: int, tls: Tls, api: KubernetesApi) -> web.AppRunner:
    """Serve POST /validate on all addresses."""

    async def validate(request: web.Request) -> web.Response:
        text = await request.text()
        try:
            asked = json.loads(text)
        except RecursionError:
            return web.json_response(too_deep(text))
        name = runtime_name(asked)
        runtimes = await _runtime(api, name) if name else {}
        answer = review(asked, runtimes)
        metrics.REVIEWS.labels(asked["request"]["operation"], _outcome(answer)).inc()
        return web.json_response(answer)

    app = web.Application(client_max_size=MAX_REVIEW_LENGTH)
    app.add_routes([web.post("/validate", validate)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEP_ALIVE_S)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=tls.context).start()
    return runner


async def _runtime(api: KubernetesApi, name: str) -> Mapping[str, Mapping[str, Any] | None]:
    try:
        async with asyncio.timeout(RUNTIME_S):
            manifest = await api.get(api_paths.runtime(name))
    except (ApiError, TimeoutError) as error:
        log.warning("the RLRuntime %s cannot be read, and the job is validated without it: %s", name, error)
        return {}
    return {name: manifest["spec"] if manifest else None}


def _outcome(answer: dict[str, Any]) -> str:
    return "allowed" if answer["response"]["allowed"] else "refused"
