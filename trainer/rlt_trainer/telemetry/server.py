"""The driver's HTTP server: /progress for the operator, /metrics for Prometheus, /healthz for the kubelet."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rlt_api.training_config import ProgressReport
from rlt_trainer.telemetry.exposition import Snapshot, families

_log = logging.getLogger(__name__)


class ProgressServer(Collector):
    """Serves the latest snapshot from threads of its own.

    `publish` only swaps a reference: it waits for no client and cannot fail, and nothing a client does reaches the
    training. Port 0 takes a free port. Raises ValueError when the port cannot be had.
    """

    def __init__(self, port: int, *, job: str = "", namespace: str = "") -> None:
        self._snapshot = Snapshot(job=job, namespace=namespace, last_step_timestamp=time.time())
        self._registry = CollectorRegistry()
        self._registry.register(self)
        try:
            self._server = _Server(self, port)
        except OSError as error:
            raise ValueError(
                f"Port {port} for /metrics and /progress cannot be had on the head: {error.strerror}. "
                "Another process in the pod listens on it; with hostNetwork, another pod of the node may."
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="progress-server", daemon=True
        )
        self._thread.start()

    def publish(self, report: ProgressReport, metrics: Mapping[str, float]) -> None:
        """Make `report` and the step's metrics (verl's names) what is served from now on. One thread calls it."""
        last = self._snapshot
        said = (report.stage, report.step, dict(metrics))
        got_on = last.report is None or said != (last.report.stage, last.report.step, last.metrics)
        completed = max(0, report.step - last.report.step) if last.report else 0
        self._snapshot = replace(
            last,
            report=report,
            metrics=dict(metrics),
            last_step_timestamp=time.time() if got_on else last.last_step_timestamp,
            steps=last.steps + completed,
            tokens=last.tokens + (metrics.get("perf/total_num_tokens", 0.0) if completed else 0.0),
        )

    def close(self) -> None:
        """Stop to answer, and free the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def collect(self) -> Iterator[Metric]:
        """For the registry: the series of the latest snapshot."""
        return families(self._snapshot)

    def respond(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body of a GET."""
        match path.partition("?")[0]:
            case "/progress":
                report = self._snapshot.report
                if report is None:
                    return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"the driver has not reported yet\n"
                body = report.model_dump_json(by_alias=True, exclude_none=True)
                return HTTPStatus.OK, "application/json", body.encode()
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return HTTPStatus.OK, content_type, encode(self._registry)
            case "/healthz":
                return HTTPStatus.OK, "text/plain", b"ok\n"
            case _:
                return HTTPStatus.NOT_FOUND, "text/plain", b"here are /progress, /metrics and /healthz\n"


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens on every address of the pod, IPv4 and IPv6. (HTTPServer would look its own name up in DNS first.)"""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, progress: ProgressServer, port: int) -> None:
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.progress = progress
        self.socket.close()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self.socket = socket.create_server(
            ("", port), family=family, dualstack_ipv6=dual, backlog=self.request_queue_size
        )
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a client of the progress server went away: %s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0
    """Seconds without a byte after which a client is given up."""
    server: _Server

    def do_GET(self) -> None:
        status, content_type, body = self.server.progress.respond(self.path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Every request is no news."""
