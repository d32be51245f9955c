"""The driver's HTTP server: /progress for the operator, /metrics for Prometheus, /healthz for the kubelet.

/history, /rollouts, /spans, /changes and /logs are for `rlt metrics`, `rlt rollouts` and the run page: JSON lines, and
the text of a log, from the run directory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rlt_api.spec.training_config import ProgressReport
from rlt_pod.report.driver_server import DriverServer
from rlt_pod.report.kept_logs import list_logs, read_log
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_trainer.telemetry.exposition import Snapshot, build_families, label_engines
from rlt_trainer.telemetry.run_history import find_latest_rollouts, read_changes, read_rollouts, read_spans

HttpResponse = tuple[HTTPStatus, str, bytes]
"""Status, content type and body."""

JSON_LINES = "application/x-ndjson"
RECORDS = ("/history", "/rollouts", "/spans", "/changes", "/logs")
"""Paths that are read from the run directory."""


class ProgressServer(Collector):
    """Serves the latest snapshot from separate threads.

    `publish` only replaces a reference: it does not wait for clients and cannot fail, and clients cannot affect the
    training. Port 0 selects a free port. RECORDS are read from `run_directory`. With a token, requests
    for all but /metrics and /healthz need it. Raises ValueError if the port is not available.
    """

    def __init__(
        self, port: int, *, run_directory: str | Path, job: str = "", namespace: str = "", token: str | None = None
    ) -> None:
        self._run = Path(run_directory)
        now = time.time()
        self._snapshot = Snapshot(job=job, namespace=namespace, last_step_timestamp=now, checkpoint_timestamp=now)
        self.count_requests: Callable[[], Mapping[str, int]] = dict
        """Counts the requests to the rollout engines by state, at each scrape."""
        self.read_engine_metrics: Callable[[], Mapping[int, Sequence[Metric]]] = dict
        """Reads the rollout engines' own metrics by the number of the engine, at each scrape."""
        self._registry = CollectorRegistry()
        self._registry.register(self)
        try:
            self._server = DriverServer(port, self.respond, token=token)
        except OSError as error:
            raise ValueError(
                f"Port {port} for /metrics and /progress is not available on the head: {error.strerror}. Stop the "
                "process that listens on it: in this pod, or with hostNetwork in any pod of the node."
            ) from error

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._server.port

    def start(self) -> None:
        """Start to serve requests."""
        self._server.start()

    def publish(self, report: ProgressReport, metrics: Mapping[str, float]) -> None:
        """Replace the snapshot with `report` and the step's metrics (verl's names). Call it from one thread only."""
        last = self._snapshot
        current = (report.stage, report.step, dict(metrics))
        has_progressed = last.report is None or current != (last.report.stage, last.report.step, last.metrics)
        completed = max(0, report.step - last.report.step) if last.report else 0
        saved = report.latest_checkpoint_step not in (None, last.report.latest_checkpoint_step if last.report else None)
        self._snapshot = replace(
            last,
            report=report,
            metrics=dict(metrics),
            last_step_timestamp=time.time() if has_progressed else last.last_step_timestamp,
            checkpoint_timestamp=time.time() if saved else last.checkpoint_timestamp,
            steps=last.steps + completed,
            tokens=last.tokens + (metrics.get("perf/total_num_tokens", 0.0) if completed else 0.0),
        )

    def close(self) -> None:
        """Stop the server and release the port."""
        self._server.close()

    def collect(self) -> Iterator[Metric]:
        """Yield the series of the latest snapshot to the registry."""
        snapshot = replace(self._snapshot, engine_requests=self.count_requests())
        yield from build_families(snapshot)
        yield from label_engines(snapshot, self.read_engine_metrics())

    def respond(self, target: str, accept: str) -> HttpResponse:
        """Return the response to a GET request for `target`, a path with or without a query."""
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
            case path if path in RECORDS:
                return self._read_record(path, {name: each[-1] for name, each in parse_qs(url.query).items()})
            case "/healthz":
                return _text(HTTPStatus.OK, "ok")
            case _:
                paths = ", ".join(("/progress", "/metrics", *RECORDS, "/healthz"))
                return _text(HTTPStatus.NOT_FOUND, f"available paths: {paths}")

    def _read_record(self, path: str, query: Mapping[str, str]) -> HttpResponse:
        for name in ("since", "step"):
            if name in query and not re.fullmatch(r"[0-9]{1,18}", query[name]):
                return _text(HTTPStatus.BAD_REQUEST, f"{name}={query[name]} is not a step number")
        step = int(query["step"]) if "step" in query else None
        try:
            match path:
                case "/history":
                    after = int(query.get("since", 0))
                    return HTTPStatus.OK, JSON_LINES, read_history(self._run / METRICS_FILE, after=after)
                case "/rollouts":
                    return self._read_rollouts(step)
                case "/changes":
                    return HTTPStatus.OK, JSON_LINES, read_changes(self._run)
                case "/logs":
                    return self._read_log(query.get("file"))
                case _ if step is not None:
                    return HTTPStatus.OK, JSON_LINES, read_spans(self._run, step)
                case _:
                    return _text(HTTPStatus.BAD_REQUEST, "step is missing")
        except OSError as error:  # for example, the shared volume is not available
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, f"{self._run} cannot be read: {error.strerror}")

    def _read_rollouts(self, step: int | None) -> HttpResponse:
        latest = find_latest_rollouts(self._run)
        if latest is None:
            return _text(HTTPStatus.NOT_FOUND, "the run has no responses yet")
        try:
            found = read_rollouts(self._run, latest if step is None else step)
        except ValueError as error:
            return _text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))
        if found is None:
            return _text(HTTPStatus.NOT_FOUND, f"step {step} has no responses; the latest are of step {latest}")
        return HTTPStatus.OK, JSON_LINES, found

    def _read_log(self, file: str | None) -> HttpResponse:
        if file is None:
            return HTTPStatus.OK, JSON_LINES, list_logs(self._run)
        found = read_log(self._run, file)
        if found is None:
            return _text(HTTPStatus.NOT_FOUND, f"the run has no log {file}")
        return HTTPStatus.OK, "text/plain", found


def _text(status: HTTPStatus, text: str) -> HttpResponse:
    return status, "text/plain", f"{text}\n".encode()
