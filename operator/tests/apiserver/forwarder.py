"""A local port that forwards to the API server and can be disconnected, to simulate an unavailable API server."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from pathlib import Path
from types import TracebackType

import yaml


class Forwarder:
    """Listens on a local port and forwards connections to the API server of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text())
        host, _, port = self._config["clusters"][0]["cluster"]["server"].removeprefix("https://").rpartition(":")
        self.target = (host, int(port))
        self.open: set[socket.socket] = set()
        self.port = 0

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig that uses this port."""
        self._config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        file = folder / "forwarded"
        file.write_text(yaml.safe_dump(self._config))
        return file

    def connect(self) -> None:
        """Listen. The port stays the same after a disconnection."""
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.forwarder = self
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def disconnect(self) -> None:
        """Close all connections and accept no new ones."""
        self._server.shutdown()
        self._server.server_close()
        for each in list(self.open):
            with contextlib.suppress(OSError):  # already closed
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Forwarder:
        self.connect()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.disconnect()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    forwarder: Forwarder


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Server)
        forwarder = self.server.forwarder
        with socket.create_connection(forwarder.target) as upstream:
            ends = {self.request, upstream}
            forwarder.open |= ends
            back = threading.Thread(target=_copy, args=(upstream, self.request), daemon=True)
            back.start()
            _copy(self.request, upstream)
            back.join()
            forwarder.open -= ends


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either end may close the connection
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
