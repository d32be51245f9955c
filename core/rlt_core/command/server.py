"""The HTTP server of the program: /progress for the operator, /metrics for Prometheus, /healthz.

/history is for `rlt metrics` and the run page, as in rlt's trainer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.parse import parse_qs

from rlt_api.driver_server import DriverServer, read_token
from rlt_core.command.console import Progress, build_report
from rlt_core.command.exposition import format_metrics
from rlt_core.command.history import History

_PATHS = b"available paths: /progress, /metrics, /history, /healthz\n"


def serve(port: int, progress: Callable[[], Progress], history: History | None, *, job: str, namespace: str) -> None:
    """Serve from daemon threads. Raises OSError if the port is not available or the token cannot be read."""

    def respond(target: str, accept: str) -> tuple[int, str, bytes]:
        current, (path, _, query) = progress(), target.partition("?")
        if path == "/progress":
            report = build_report(current)
            if report is None:
                return 503, "text/plain", b"the command has not reported a step yet\n"
            return 200, "application/json", json.dumps(report).encode()
        if path == "/metrics":
            text = format_metrics(current, job=job, namespace=namespace)
            return 200, "text/plain; version=0.0.4; charset=utf-8", text.encode()
        if path == "/history" and history:
            return _read_history(history, parse_qs(query).get("since", ["0"])[-1])
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        return 404, "text/plain", _PATHS

    DriverServer(port, respond, read_token()).start()


def _read_history(history: History, since: str) -> tuple[int, str, bytes]:
    if not re.fullmatch("[0-9]{1,18}", since):
        return 400, "text/plain", f"since={since} is not a step number\n".encode()
    try:
        return 200, "application/x-ndjson", history.read(int(since))
    except OSError as error:  # for example, the shared volume is not available
        return 503, "text/plain", f"{error.filename} cannot be read: {error.strerror}\n".encode()
