"""The HTTP server of the program: /progress for the operator, /metrics for Prometheus, /healthz.

With a run directory, /history and /logs are for `rlt metrics` and the run page, as in rlt's trainer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs

from rlt_api.driver_server import DriverServer, read_token
from rlt_api.kept_logs import list_logs, read_log
from rlt_api.step_history import METRICS_FILE, read_history
from rlt_core.command.console import Progress, build_report
from rlt_core.command.exposition import format_metrics

JSON_LINES = "application/x-ndjson"
PATHS = b"available paths: /progress, /metrics, /history, /logs, /healthz\n"


def serve(port: int, progress: Callable[[], Progress], run_directory: str | None, *, job: str, namespace: str) -> None:
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
        if path in ("/history", "/logs") and run_directory:
            return _read_record(Path(run_directory), path, {name: each[-1] for name, each in parse_qs(query).items()})
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        return 404, "text/plain", PATHS

    DriverServer(port, respond, read_token()).start()


def _read_record(run: Path, path: str, query: Mapping[str, str]) -> tuple[int, str, bytes]:
    since, file = query.get("since", "0"), query.get("file")
    if not re.fullmatch("[0-9]{1,18}", since):
        return 400, "text/plain", f"since={since} is not a step number\n".encode()
    try:
        if path == "/history":
            return 200, JSON_LINES, read_history(run / METRICS_FILE, after=int(since))
        if file is None:
            return 200, JSON_LINES, list_logs(run)
        found = read_log(run, file)
    except OSError as error:  # for example, the shared volume is not available
        return 503, "text/plain", f"{run} cannot be read: {error.strerror}\n".encode()
    return (404, "text/plain", f"the run has no log {file}\n".encode()) if found is None else (200, "text/plain", found)
