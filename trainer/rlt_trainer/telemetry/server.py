"""The driver's HTTP server: /progress for the operator, /metrics for Prometheus, /healthz for the kubelet.

/history and /rollouts are for people who follow the run (`rlt metrics`, `rlt rollouts`): JSON lines of the run's files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rlt_api.driver_server import DriverServer
from rlt_api.training_config import ProgressReport
from rlt_trainer.telemetry.exposition import Snapshot, families
from rlt_trainer.telemetry.run_history import latest_rollouts, metrics_since, rollouts_of

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""

JSON_LINES = "application/x-ndjson"


class ProgressServer(Collector):
    """Serves the latest snapshot from threads of its own.

    `publish` only swaps a reference: it waits for no client and cannot fail, and nothing a client does reaches the
    training. Port 0 takes a free port. `run_directory` is where /history and /rollouts are read from. Raises ValueError
    when the port cannot be had.
    """

    def __init__(self, port: int, *, run_directory: str | Path, job: str = "", namespace: str = "") -> None:
        self._run = Path(run_directory)
        self._snapshot = Snapshot(job=job, namespace=namespace, last_step_timestamp=time.time())
        self._registry = CollectorRegistry()
        self._registry.register(self)
        try:
            self._server = DriverServer(port, self.respond)
        except OSError as error:
            raise ValueError(
                f"Port {port} for /metrics and /progress cannot be had on the head: {error.strerror}. "
                "Another process in the pod listens on it; with hostNetwork, another pod of the node may."
            ) from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

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
        self._server.close()

    def collect(self) -> Iterator[Metric]:
        """For the registry: the series of the latest snapshot."""
        return families(self._snapshot)

    def respond(self, target: str, accept: str) -> Answer:
        """The answer to a GET of `target`, a path with or without a query."""
        url = urlsplit(target)
        match url.path:
            case "/progress":
                report = self._snapshot.report
                if report is None:
                    return _text(HTTPStatus.SERVICE_UNAVAILABLE, "the driver has not reported yet")
                body = report.model_dump_json(by_alias=True, exclude_none=True)
                return HTTPStatus.OK, "application/json", body.encode()
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return HTTPStatus.OK, content_type, encode(self._registry)
            case "/history" | "/rollouts":
                return self._from_run_directory(url.path, parse_qs(url.query))
            case "/healthz":
                return _text(HTTPStatus.OK, "ok")
            case _:
                return _text(HTTPStatus.NOT_FOUND, "here are /progress, /metrics, /history, /rollouts and /healthz")

    def _from_run_directory(self, path: str, query: Mapping[str, list[str]]) -> Answer:
        name = "since" if path == "/history" else "step"
        given = query.get(name, [""])[-1]
        if given and not re.fullmatch(r"[0-9]{1,18}", given):
            return _text(HTTPStatus.BAD_REQUEST, f"{name}={given} is no number of a step")
        try:
            if path == "/history":
                return HTTPStatus.OK, JSON_LINES, metrics_since(self._run, int(given or 0))
            latest = latest_rollouts(self._run)
            step = int(given) if given else latest
            found = rollouts_of(self._run, step) if step is not None else None
        except OSError as error:  # the shared volume is in trouble
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"{self._run} cannot be read: {error.strerror}")
        if found is not None:
            return HTTPStatus.OK, JSON_LINES, found
        if latest is None:
            return _text(HTTPStatus.NOT_FOUND, "there are no responses yet")
        return _text(HTTPStatus.NOT_FOUND, f"there are no responses of step {step}; the latest are of step {latest}")


def _text(status: HTTPStatus, text: str) -> Answer:
    return status, "text/plain", f"{text}\n".encode()
