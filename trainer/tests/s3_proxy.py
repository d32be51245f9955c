"""A proxy before an S3 server: chosen requests get an error, half of their answer, or no answer at all."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Fault:
    """What a client gets instead of the server's answer."""

    status: int
    code: str
    message: str

    @property
    def body(self) -> bytes:
        """The answer, as S3 words errors."""
        return f"<Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>".encode()


UNAVAILABLE = Fault(503, "SlowDown", "Please reduce your request rate.")
FULL = Fault(507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold.")
"""MinIO, whose disks are full."""
QUOTA = Fault(403, "QuotaExceeded", "The quota of the bucket is exceeded.")
"""Ceph, and other servers with quotas."""


class Cut(Enum):
    """Where a connection ends without an error."""

    BEFORE = "before the request reaches the server"
    AFTER = "after the server has done it, without an answer"
    HALF = "in the middle of the answer"


@dataclass(frozen=True)
class Request:
    """A request of a client, before the server has it."""

    number: int
    method: str
    key: str
    """Path with the bucket, without the query."""
    range: str | None
    """The header Range."""


Decision = bool | Fault | Cut
"""True: the server's answer. False: UNAVAILABLE."""


@contextmanager
def s3_proxy(server: str, decide: Callable[[Request], Decision]) -> Iterator[str]:
    """Yield the URL of a proxy before `server`, which asks `decide` for each request after its body was read."""
    host = urlsplit(server).netloc
    lock = threading.Lock()
    count = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            nonlocal count
            with lock:
                count += 1
                request = Request(count, self.command, urlsplit(self.path).path, self.headers.get("Range"))
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            decision = decide(request)
            if decision is Cut.BEFORE:
                self.close_connection = True
                return
            fault = decision if isinstance(decision, Fault) else UNAVAILABLE
            if decision is False or fault is decision:
                self.reply(fault.status, [("Content-Type", "application/xml")], fault.body)
                return
            connection = http.client.HTTPConnection(host, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            self.close_connection = isinstance(decision, Cut)
            if decision is not Cut.AFTER:
                self.reply(
                    answer.status, answer.getheaders(), content, sent=len(content) // (2 if decision is Cut.HALF else 1)
                )

        def reply(self, status: int, headers: list[tuple[str, str]], content: bytes, sent: int | None = None) -> None:
            self.send_response(status)
            length = next((value for name, value in headers if name.lower() == "content-length"), str(len(content)))
            for name, value in headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content[:sent])

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
