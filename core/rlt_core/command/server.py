"""What the server beside the command answers: /progress for the operator, /metrics for Prometheus, /healthz."""

from __future__ import annotations

import json
from collections.abc import Callable

from rlt_api.driver_server import DriverServer
from rlt_core.command.console import Progress, report
from rlt_core.command.exposition import exposition


def serve(port: int, progress: Callable[[], Progress], *, job: str, namespace: str) -> None:
    """Answer from threads of its own for as long as the process lives. Raises OSError if the port cannot be had."""

    def respond(target: str, accept: str) -> tuple[int, str, bytes]:
        seen, path = progress(), target.partition("?")[0]
        if path == "/progress":
            said = report(seen)
            if said is None:
                return 503, "text/plain", b"the command has said nothing of its steps yet\n"
            return 200, "application/json", json.dumps(said).encode()
        if path == "/metrics":
            text = exposition(seen, job=job, namespace=namespace)
            return 200, "text/plain; version=0.0.4; charset=utf-8", text.encode()
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        return 404, "text/plain", b"here are /progress, /metrics and /healthz\n"

    DriverServer(port, respond).start()
