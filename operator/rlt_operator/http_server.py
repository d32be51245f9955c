"""The HTTP port of the operator and of the webhook: /metrics, /healthz (liveness) and /readyz (readiness).

Liveness depends on nothing outside of the process: a restart does not repair the API server. An answer shows that the
event loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry

from rlt_core.kubernetes.client import KubernetesApi
from rlt_core.kubernetes.reviews import Reviews
from rlt_operator import metrics, secure_metrics


@dataclass(frozen=True)
class Ports:
    """The ports of a process for Kubernetes and Prometheus."""

    metrics: int
    """HTTP: the probes, and the metrics without `secure_metrics`."""
    secure_metrics: int | None = None
    """HTTPS: the metrics, for clients with a token."""


async def serve(
    ports: Ports,
    *,
    ready: Mapping[str, Callable[[], bool]],
    api: KubernetesApi,
    registry: CollectorRegistry = metrics.REGISTRY,
) -> AsyncExitStack:
    """Serve on all addresses until the exit of the result. `ready`: name of a requirement -> whether it is met.

    `api` reviews the tokens.
    """
    stack = AsyncExitStack()
    if ports.secure_metrics is None:
        stack.push_async_callback((await serve_probes(ports.metrics, ready, registry)).cleanup)
    else:
        stack.push_async_callback((await serve_probes(ports.metrics, ready, None)).cleanup)
        secured = await secure_metrics.serve(ports.secure_metrics, Reviews(api), registry)
        stack.push_async_callback(secured.cleanup)
    return stack


async def serve_probes(
    port: int, ready: Mapping[str, Callable[[], bool]], registry: CollectorRegistry | None
) -> web.AppRunner:
    """Serve the probes, and the metrics of a registry."""

    async def get_metrics(_: web.Request) -> web.Response:
        if registry is None:
            return web.Response(status=404, text="metrics are at the port of --secure-metrics-port\n")
        return web.Response(body=metrics.render(registry), content_type="text/plain", charset="utf-8")

    async def get_health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def get_ready(_: web.Request) -> web.Response:
        missing = [name for name, is_met in ready.items() if not is_met()]
        if missing:
            return web.Response(status=503, text=f"not ready: {', '.join(missing)}\n")
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", get_metrics), web.get("/healthz", get_health), web.get("/readyz", get_ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
