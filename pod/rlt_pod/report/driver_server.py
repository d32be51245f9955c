"""The driver's HTTP server, in rlt's trainer and in the program that runs any other command.

It needs only Python 3.8 and its standard library, because it is mounted into images that rlt does not build.
"""

from __future__ import annotations

import hmac
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler

TOKEN_HEADER = "X-Ray-Authorization"
"""Header with `Bearer TOKEN`, which Ray's job API also reads. The API server's proxy drops `Authorization`."""
OPEN_PATHS = ("/metrics", "/healthz")
"""Paths without a token: Prometheus and the kubelet have none."""
DEFAULT_TOKEN_PATH = "~/.ray/auth_token"
"""Where `ray get-auth-token --generate` stores a token. With this file, Ray sets RAY_AUTH_MODE alone."""


def read_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """Read the token of the Ray cluster as Ray does (rpc/authentication/authentication_token_loader.cc, Ray 2.60).

    None without RAY_AUTH_MODE=token. Raises OSError if the file cannot be read.
    """
    if environ.get("RAY_AUTH_MODE") != "token":
        return None
    if environ.get("RAY_AUTH_TOKEN"):
        return environ["RAY_AUTH_TOKEN"]
    path = environ.get("RAY_AUTH_TOKEN_PATH") or DEFAULT_TOKEN_PATH
    with open(os.path.expanduser(path), encoding="ascii") as file:
        return file.read().strip()


class DriverServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens on every address of the pod, IPv4 and IPv6. (HTTPServer would first resolve its own name in DNS.)

    `respond` returns status, content type and body of the response to a GET, from the path with its query and the
    Accept header; the server's threads call it. With a token, requests for all but OPEN_PATHS need it. Port 0 selects a
    free port. Raises OSError if the port is in use.
    """

    daemon_threads = True

    def __init__(
        self, port: int, respond: Callable[[str, str], tuple[int, str, bytes]], token: str | None = None
    ) -> None:
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.respond = respond
        self._token = token
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="progress-server", daemon=True)
        self.socket.close()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self.socket = socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=64)
        self.server_address = self.socket.getsockname()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Serve requests until `close` or the end of the process."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and release the port."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def admits(self, path: str, authorization: str) -> bool:
        """Whether to respond to a request for `path` (with its query) with this value of TOKEN_HEADER."""
        if self._token is None or path.partition("?")[0] in OPEN_PATHS:
            return True
        given = authorization.encode("latin-1", "replace")
        expected = f"Bearer {self._token}".encode()
        return bool(self._token) and hmac.compare_digest(given, expected)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connection errors: clients may disconnect."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    """Seconds without data after which the server closes a connection."""
    server: DriverServer

    def do_GET(self) -> None:
        authorization = self.headers.get(TOKEN_HEADER) or self.headers.get("Authorization") or ""
        if self.server.admits(self.path, authorization):
            status, content_type, body = self.server.respond(self.path, self.headers.get("Accept", ""))
        else:
            status = 401
            content_type = "text/plain"
            body = f"{TOKEN_HEADER}: the job's token is required\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests: the output belongs to the training."""
