"""Sends the spans of each step to an OpenTelemetry collector (OTLP over HTTP): the same ones as in spans.jsonl.

A step is one trace. Its root is the driver's span of the step; the phases of all ranks are below it. OpenTelemetry's
own variables configure it, and without an endpoint no span is sent. A collector that fails never stops the training:
OpenTelemetry logs the error and drops the spans.
https://opentelemetry.io/docs/specs/otel/protocol/exporter/
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rlt_trainer.extras import explain_missing
from rlt_trainer.telemetry.spans import DRIVER, STEP, Span

if TYPE_CHECKING:
    from opentelemetry import trace

_log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables with the URL of the collector. One of them enables the traces."""
QUEUED_SPANS = 2**16
"""Spans that wait for the collector. Further ones are dropped."""


class Traces:
    """Exports the spans of a run, in its own thread."""

    def __init__(self, *, job: str, namespace: str) -> None:
        """`job` and `namespace` are attributes of the resource, as in the semantic conventions for Kubernetes."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        attributes = {"service.name": "rlt-trainer", "k8s.namespace.name": namespace, "rlt.job": job}
        self._provider = TracerProvider(resource=Resource.create(attributes))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=QUEUED_SPANS))
        self._tracer = self._provider.get_tracer("rlt_trainer")

    def export(self, spans: Sequence[Span]) -> None:
        """Send the spans of one step."""
        from opentelemetry import trace

        opened: dict[int, trace.Span] = {}
        for span, parent in find_parents(spans):
            context = trace.set_span_in_context(opened[id(parent)]) if parent else None
            attributes = {"rlt.step": span.step, "rlt.rank": span.rank, "rlt.thread": span.thread}
            opened[id(span)] = self._tracer.start_span(
                span.phase, context, start_time=_to_ns(span.start), attributes=attributes
            )
        for span in spans:
            opened[id(span)].end(_to_ns(span.end))

    def close(self) -> None:
        """Send what waits, for at most the timeout of the exporter (OTEL_EXPORTER_OTLP_TIMEOUT, 10 s by default)."""
        self._provider.shutdown()


def open_traces(*, job: str, namespace: str, environ: Mapping[str, str] = os.environ) -> Traces | None:
    """Return the traces of the run. None: no endpoint is configured, or OpenTelemetry is not installed.

    The latter is a warning: a platform may set the variable for all pods.
    """
    endpoint = next((name for name in ENDPOINTS if environ.get(name)), None)
    if endpoint is None:
        return None
    if missing := explain_missing("traces", endpoint):
        _log.warning("no traces are sent: %s", missing)
        return None
    return Traces(job=job, namespace=namespace)


def find_parents(spans: Sequence[Span]) -> Iterator[tuple[Span, Span | None]]:
    """Yield each span after its parent: the innermost span of its thread that contains it, else the span of the step.

    The span of the step has no parent.
    """
    root = next(span for span in spans if span.rank == DRIVER and span.phase == STEP)
    yield root, None
    threads: dict[tuple[int, int], list[Span]] = {}
    for span in sorted(spans, key=lambda each: (each.start, -each.end)):
        if span is root:
            continue
        within = threads.setdefault((span.rank, span.thread), [])
        while within and within[-1].end < span.end:
            within.pop()
        yield span, within[-1] if within else root
        within.append(span)


def _to_ns(seconds: float) -> int:
    return int(seconds * 1e9)
