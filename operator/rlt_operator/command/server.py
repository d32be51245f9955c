"""The HTTP server beside the command: /progress for the operator, /metrics for Prometheus, /healthz."""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from rlt_operator.command.console import Progress, report
from rlt_operator.command.exposition import exposition


def serve(port: int, progress: Callable[[], Progress], *, job: str, namespace: str) -> None:
    """Answer from threads of its own for as long as the process lives. Raises OSError if the port cannot be had."""
    server = _Server(port, progress, job=job, namespace=namespace)
    threading.Thread(target=server.serve_forever, name="progress-server", daemon=True).start()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens on every address of the pod, IPv4 and IPv6. (HTTPServer would look its own name up in DNS first.)"""

    daemon_threads = True

    def __init__(self, port: int, progress: Callable[[], Progress], *, job: str, namespace: str) -> None:
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.progress, self.job, self.namespace = progress, job, namespace
        self.socket.close()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self.socket = socket.create_server(("", port), family=family, dualstack_ipv6=dual)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may go away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    """Seconds without a byte after which a client is given up."""
    server: _Server

    def do_GET(self) -> None:
        status, content_type, body = self._answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        seen = self.server.progress()
        if path == "/progress":
            said = report(seen)
            if said is None:
                return 503, "text/plain", b"the command has said nothing of its steps yet\n"
            return 200, "application/json", json.dumps(said).encode()
        if path == "/metrics":
            text = exposition(seen, job=self.server.job, namespace=self.server.namespace)
            return 200, "text/plain; version=0.0.4; charset=utf-8", text.encode()
        if path == "/healthz":
            return 200, "text/plain", b"ok\n"
        return 404, "text/plain", b"here are /progress, /metrics and /healthz\n"

    def log_message(self, format: str, *args: object) -> None:
        """Every request is no news, and the output is the command's."""
