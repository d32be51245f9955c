"""The HTTP port of the operator and of the webhook: /metrics, /healthz (liveness) and /readyz (readiness).

Liveness depends on nothing outside of the process: a restart does not repair the API server. An answer shows that the
event loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry

from rlt_operator import metrics


async def serve(
    port: int, *, ready: Mapping[str, Callable[[], bool]], registry: CollectorRegistry = metrics.REGISTRY
) -> web.AppRunner:
    """Serve on all addresses. `ready`: name of a requirement -> whether it is met."""

    async def get_metrics(_: web.Request) -> web.Response:
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
