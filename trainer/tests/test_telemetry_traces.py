"""A receiver of OTLP over HTTP gets the spans of each step, as one trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rlt_trainer.telemetry.spans import DRIVER, STEP, Span
from rlt_trainer.telemetry.traces import Traces, open_traces

STEP_3 = [
    Span(DRIVER, STEP, 100.0, 110.0, 3),
    Span(DRIVER, "gen", 100.0, 104.0, 3),
    Span(DRIVER, "update_actor", 105.0, 109.0, 3),
    Span(DRIVER, "forward", 105.5, 106.0, 3),
    Span(DRIVER, "reward", 99.0, 103.0, 3, thread=1),
    Span(0, "update_actor", 105.25, 108.5, 3),
    Span(1, "update_actor", 105.5, 108.75, 3),
]


class Receiver(HTTPServer):
    """Keeps the decoded requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, ExportTraceServiceRequest]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        yield server
        server.shutdown()
        thread.join()


def open_enabled() -> Traces:
    traces = open_traces(job="sum", namespace="demo")
    assert traces
    return traces


def test_a_collector_receives_the_spans_of_a_step_as_one_trace(receiver: Receiver) -> None:
    traces = open_enabled()
    traces.export(STEP_3)
    traces.close()
    ((path, request),) = receiver.requests
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (attributes["service.name"], attributes["rlt.job"]) == ("rlt-trainer", "sum")
    assert attributes["k8s.namespace.name"] == "demo"
    (scope,) = resource.scope_spans
    assert len({span.trace_id for span in scope.spans}) == 1
    phases = {span.span_id: span.name for span in scope.spans}
    received = {}
    for span in scope.spans:
        numbers = {each.key: each.value.int_value for each in span.attributes}
        original = Span(
            numbers["rlt.rank"],
            span.name,
            span.start_time_unix_nano / 1e9,
            span.end_time_unix_nano / 1e9,
            numbers["rlt.step"],
            numbers["rlt.thread"],
        )
        received[original] = phases.get(span.parent_span_id)
    assert received == dict.fromkeys(STEP_3, STEP) | {STEP_3[0]: None, STEP_3[3]: "update_actor"}


def test_each_step_is_a_trace(receiver: Receiver) -> None:
    traces = open_enabled()
    traces.export(STEP_3)
    traces.export([Span(DRIVER, STEP, 110.0, 120.0, 4)])
    traces.close()
    spans = [span for _, request in receiver.requests for span in request.resource_spans[0].scope_spans[0].spans]
    assert len({span.trace_id for span in spans}) == 2


def test_without_an_endpoint_nothing_is_exported() -> None:
    assert open_traces(job="sum", namespace="demo", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": ""}) is None
