"""An HTTP proxy in front of the API server that can hold the response to a request until the test releases it."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import yaml

HOP_HEADERS = frozenset({"connection", "host", "keep-alive", "transfer-encoding", "content-length"})


class HoldingProxy:
    """Forwards every request with the client certificate of a kubeconfig."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        self.target = (host, int(port))
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.trust = ssl.create_default_context(cadata=authority)
        pair = folder / "client.pem"
        pair.write_bytes(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        self.trust.load_cert_chain(pair)
        self._held_path: str | None = None
        self.held = threading.Event()
        self.delivered = threading.Event()
        self._released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}
        config["users"][0]["user"] = {}
        self.kubeconfig = folder / "proxied"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def __enter__(self) -> HoldingProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def hold_write(self, path: str) -> None:
        """Hold the response to the next write to a path that contains this part."""
        self._held_path = path

    def release(self) -> None:
        """Deliver the held response to the socket of the client, and wait until it has arrived."""
        self._released.set()
        assert self.delivered.wait(10)

    def wait_if_held(self, method: str, path: str) -> bool:
        """Block a response that is to be held until it is released. Returns whether it was held."""
        if method == "GET" or self._held_path is None or self._held_path not in path:
            return False
        self._held_path = None
        self.held.set()
        return self._released.wait()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    proxy: HoldingProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A replica that ends closes its connections."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"  # a kept connection sends the next request at once

    def forward(self) -> None:
        """Forward a request, and copy the response as it arrives."""
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS}
        upstream = http.client.HTTPSConnection(*proxy.target, context=proxy.trust)
        try:
            upstream.request(self.command, self.path, body or None, headers)
            response = upstream.getresponse()
            was_held = proxy.wait_if_held(self.command, self.path)
            self.send_response_only(response.status)
            for name, value in response.getheaders():
                if name.lower() not in HOP_HEADERS:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while data := response.read1(2**16):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
            if was_held:
                proxy.delivered.set()
        finally:
            upstream.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward
