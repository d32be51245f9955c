"""/metrics over HTTPS, for clients with a token that has the verb get on this path, as in controller-runtime.

The certificate is self-signed and held in memory alone: a scraper does not verify it (insecureSkipVerify).
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

from aiohttp import web
from prometheus_client import CollectorRegistry

from rlt_core.kubernetes.client import ApiError
from rlt_core.kubernetes.reviews import Reviews
from rlt_operator import metrics
from rlt_operator.key_pair import create_key_pair, load_key_pair

PATH = "/metrics"


async def serve(port: int, reviews: Reviews, registry: CollectorRegistry = metrics.REGISTRY) -> web.AppRunner:
    """Serve on all addresses."""

    async def get_metrics(request: web.Request) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            person = await reviews.authenticate(token.strip()) if scheme.lower() == "bearer" else None
            if person is None:
                text = "a bearer token of the cluster is required: it is missing, invalid or expired\n"
                return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
            if not await reviews.may_get_path(person, PATH):
                text = f"{person.username} may not read {PATH}: it needs a ClusterRole with the verb get on it\n"
                return web.Response(status=403, text=text)
        except ApiError as error:
            status = 429 if error.status == 429 else 503
            return web.Response(status=status, text="the API server cannot check the token: retry later\n")
        return web.Response(body=metrics.render(registry), content_type="text/plain", charset="utf-8")

    pair = create_key_pair(frozenset({"localhost"}), now=datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # as Go's client, and older ones
    load_key_pair(context, pair.certificate, pair.key)
    app = web.Application()
    app.add_routes([web.get(PATH, get_metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=context).start()
    return runner
