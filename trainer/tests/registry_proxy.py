"""A proxy before an image registry: it asks for a login, records requests, and answers chosen ones with an error."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

USER = "writer:secret-of-the-registry"
TOKEN = "issued-token"
Login = Literal["none", "basic", "bearer"]


@dataclass
class RegistryProxy:
    """The proxy. `login`: how clients prove that they are USER."""

    server: str
    login: Login = "none"
    fail: Callable[[str, str], int] = lambda method, path: 0
    """(method, path) -> the status of an error, -1 for a lost connection, or 0 for the server's answer."""
    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def count(self, method: str, part: str) -> int:
        """The number of requests with a part of a path."""
        return sum(given == method and part in path for given, path in self.requests)


@contextmanager
def registry_proxy(server: str) -> Iterator[RegistryProxy]:
    """Yield a proxy before the registry at host and port `server`."""
    proxy = RegistryProxy(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            basic = f"Basic {base64.b64encode(USER.encode()).decode()}"
            given = self.headers.get("Authorization")
            if self.path.startswith("/token"):
                is_user = given == basic and "scope=repository%3Alab%2Fmath%3Apull%2Cpush" in self.path
                self.reply(200 if is_user else 401, {}, json.dumps({"token": TOKEN} if is_user else {}).encode())
                return
            realm = f'Bearer realm="http://{proxy.address}/token",service="registry"'
            challenge, wanted = {
                "none": ("", given),
                "basic": ('Basic realm="registry"', basic),
                "bearer": (realm, f"Bearer {TOKEN}"),
            }[proxy.login]
            if given != wanted:
                error = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
                self.reply(401, {"WWW-Authenticate": challenge}, json.dumps(error).encode())
                return
            proxy.requests.append((self.command, self.path))
            status = proxy.fail(self.command, self.path)
            if status > 0:
                self.reply(status, {}, b"")
            elif status < 0:
                self.close_connection = True
            else:
                self.ask_server(body)

        def ask_server(self, body: bytes) -> None:
            connection = http.client.HTTPConnection(proxy.server, timeout=60)
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            self.reply(answer.status, dict(answer.getheaders()), answer.read())
            connection.close()

        def reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", headers.get("Content-Length", str(len(content))))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = forward

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        proxy.port = listener.server_port
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            listener.shutdown()
            thread.join()
