"""The process of the admission webhook. It writes no object, and a flood of reviews costs the operator nothing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import resource
from dataclasses import dataclass
from pathlib import Path

from rlt_api.spec.runtime_policy import RuntimePolicy
from rlt_core.kubernetes import client
from rlt_operator import http_server, metrics
from rlt_operator.http_server import Ports
from rlt_operator.tasks import measure_loop_delay, start, stop_on_signal, wait_for_first
from rlt_operator.webhook import server
from rlt_operator.webhook.certificates import CertificateLocation, keep_certificate, serve_folder
from rlt_operator.webhook.tls import ClientCertificates, Tls

MAX_OPEN_FILES = 512
"""Bounds the connections, each of which has buffers of up to 0.2 MiB."""
log = logging.getLogger("rlt_operator.webhook")


@dataclass(frozen=True)
class WebhookOptions:
    """How to serve the admission webhook."""

    port: int
    ports: Ports
    certificates: CertificateLocation | Path
    """Where the operator stores its own certificate, or a folder that another program fills."""
    clients: ClientCertificates | None = None
    """The certificate that clients need; None: clients need none."""


async def run(options: WebhookOptions, runtimes: RuntimePolicy) -> None:
    """Run until SIGTERM or SIGINT. `runtimes` is the policy of the cluster for the RLRuntimes of jobs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX_OPEN_FILES, hard), hard))
    stop = stop_on_signal()
    api = await client.connect(f"rlt-webhook/{importlib.metadata.version('rlt-operator')}")
    api.on_response = metrics.count_api_request
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(api.close)
        tls = Tls(options.clients)
        ready = {"stopping": lambda: not stop.is_set(), "the webhook has no certificate": lambda: tls.has_certificate}
        registry = metrics.WEBHOOK_REGISTRY
        await stack.enter_async_context(await http_server.serve(options.ports, ready=ready, api=api, registry=registry))
        stack.push_async_callback((await server.serve(options.port, tls, api, runtimes)).cleanup)
        source = options.certificates
        log.info("serving reviews", extra={"inCluster": client.in_cluster()})
        keep = serve_folder(source, tls.load) if isinstance(source, Path) else keep_certificate(api, source, tls.load)
        tasks = [start(keep, stack), start(measure_loop_delay(), stack), asyncio.create_task(stop.wait())]
        await wait_for_first(tasks)
    log.info("stopped")
