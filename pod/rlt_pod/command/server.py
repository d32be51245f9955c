"""The HTTP server of the program: /progress for the operator, /metrics for Prometheus, /healthz, and its records."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import parse_qs

from rlt_pod.command.console import Progress, build_report
from rlt_pod.command.exposition import format_metrics
from rlt_pod.command.records import Records
from rlt_pod.report.driver_server import DriverServer, read_token


def serve(port: int, progress: Callable[[], Progress], records: Records | None, *, job: str, namespace: str) -> None:
    """Serve from daemon threads. Raises OSError if the port is not available or the token cannot be read."""
    served = records.paths if records else ()

    def respond(target: str, accept: str) -> tuple[int, str, bytes]:
        current = progress()
        path, _, query = target.partition("?")
        if path == "/progress":
            report = build_report(current)
            if report is None:
                return 503, "text/plain", b"the command has not reported a step yet\n"
            return 200, "application/json", json.dumps(report).encode()
        if path == "/metrics":
            text = format_metrics(current, job=job, namespace=namespace)
            return 200, "text/plain; version=0.0.4; charset=utf-8", text.encode()
        if records and path in served:
            return records.respond(path, {name: each[-1] for name, each in parse_qs(query).items()})
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        paths = ", ".join(("/progress", "/metrics", *served, "/healthz"))
        return 404, "text/plain", f"available paths: {paths}\n".encode()

    DriverServer(port, respond, read_token()).start()
