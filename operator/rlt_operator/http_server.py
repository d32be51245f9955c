"""The operator's HTTP port: /metrics, /healthz (liveness) and /readyz (readiness)."""

from __future__ import annotations

import time
from collections.abc import Callable

from aiohttp import web

from rlt_operator import metrics

LIVENESS_TIMEOUT_S = 120.0
"""After this time without a response of the API server, /healthz fails. The operator sends a request every 30 s."""


async def serve(port: int, *, last_response: Callable[[], float], ready: Callable[[], bool]) -> web.AppRunner:
    """Serve on all addresses. `last_response` is the time of the API server's last response (time.monotonic)."""

    async def get_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), content_type="text/plain", charset="utf-8")

    async def get_health(_: web.Request) -> web.Response:
        elapsed = time.monotonic() - last_response()
        if elapsed > LIVENESS_TIMEOUT_S:
            return web.Response(status=503, text=f"the API server has not answered for {elapsed:.0f} s\n")
        return web.Response(text="ok\n")

    async def get_ready(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(status=503, text="starting\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", get_metrics), web.get("/healthz", get_health), web.get("/readyz", get_ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
