"""The HTTP server beside a training: of rlt's own trainer, and of the program that follows any other command.

Python 3.8 and its standard library are all that it asks for: it is mounted into images that are not rlt's own.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler


class DriverServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens on every address of the pod, IPv4 and IPv6. (HTTPServer would look its own name up in DNS first.)

    `respond` makes the answer to a GET, its status, content type and body, from the path with the query and the header
    Accept; threads of the server's own call it. Port 0 takes a free port. Raises OSError if the port cannot be had.
    """

    daemon_threads = True

    def __init__(self, port: int, respond: Callable[[str, str], tuple[int, str, bytes]]) -> None:
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.respond = respond
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="progress-server", daemon=True)
        self.socket.close()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self.socket = socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=64)
        self.server_address = self.socket.getsockname()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Begin to answer, for as long as the process lives or until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Stop to answer, and free the port."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may go away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    """Seconds without a byte after which a client is given up."""
    server: DriverServer

    def do_GET(self) -> None:
        status, content_type, body = self.server.respond(self.path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Every request is no news, and the output is the training's."""
