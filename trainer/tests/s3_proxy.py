"""A proxy before an S3 server that answers chosen requests with 503, or calls a function before them."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

UNAVAILABLE = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass(frozen=True)
class Request:
    """A request of a client, before the server has it."""

    number: int
    method: str
    key: str
    """Path with the bucket, without the query."""


@contextmanager
def s3_proxy(server: str, decide: Callable[[Request], bool]) -> Iterator[str]:
    """Yield the URL of a proxy before `server`. It answers 503 if `decide` returns False, after the body was read."""
    host = urlsplit(server).netloc
    lock = threading.Lock()
    count = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            nonlocal count
            with lock:
                count += 1
                request = Request(count, self.command, urlsplit(self.path).path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not decide(request):
                self.reply(503, [("Content-Type", "application/xml")], UNAVAILABLE)
                return
            connection = http.client.HTTPConnection(host, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            self.reply(answer.status, answer.getheaders(), content)
            connection.close()

        def reply(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response(status)
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(content)))
            for name, value in headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
