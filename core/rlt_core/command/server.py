"""The HTTP server of the program: /progress for the operator, /metrics for Prometheus, /healthz."""

from __future__ import annotations

import json
from collections.abc import Callable

from rlt_api.driver_server import DriverServer, read_token
from rlt_core.command.console import Progress, build_report
from rlt_core.command.exposition import format_metrics


def serve(port: int, progress: Callable[[], Progress], *, job: str, namespace: str) -> None:
    """Serve from daemon threads. Raises OSError if the port is not available or the token cannot be read."""

    def respond(target: str, accept: str) -> tuple[int, str, bytes]:
        current, path = progress(), target.partition("?")[0]
        if path == "/progress":
            report = build_report(current)
            if report is None:
                return 503, "text/plain", b"the command has not reported a step yet\n"
            return 200, "application/json", json.dumps(report).encode()
        if path == "/metrics":
            text = format_metrics(current, job=job, namespace=namespace)
            return 200, "text/plain; version=0.0.4; charset=utf-8", text.encode()
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        return 404, "text/plain", b"available paths: /progress, /metrics, /healthz\n"

    DriverServer(port, respond, read_token()).start()
