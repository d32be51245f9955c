"""Prometheus metrics of a progress report and a step's metrics. Pure: no state, no clock, no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rlt_api.spec.training_config import ProgressReport
from rlt_pod.report import prometheus_names as names


@dataclass(frozen=True)
class Snapshot:
    """The state of the run at one moment."""

    job: str
    namespace: str
    last_step_timestamp: float
    """Unix time."""
    report: ProgressReport | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    tokens: float = 0.0
    """Tokens trained on since the driver started."""
    steps: int = 0
    """Steps completed since the driver started."""
    checkpoint_timestamp: float | None = None
    """Unix time of the latest complete checkpoint; the start of the driver before one. None for commands."""
    engine_requests: Mapping[str, int] = field(default_factory=dict)
    """State, running or waiting -> number of requests to the rollout engines."""


def build_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield one metric family for each name. Each series has the labels job and namespace."""
    target = {"job": snapshot.job, "namespace": snapshot.namespace}
    series: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}

    def add(name: str, value: float, **labels: str) -> None:
        series.setdefault(name, {})[tuple((target | labels).items())] = value

    for key, value in snapshot.metrics.items():
        gauge, labels = names.find_gauge(key)
        add(gauge.name, gauge.factor * value, **labels)
    add(names.LAST_STEP_TIMESTAMP, snapshot.last_step_timestamp)
    if snapshot.checkpoint_timestamp is not None:
        add(names.LATEST_CHECKPOINT_TIMESTAMP, snapshot.checkpoint_timestamp)
    for state, count in snapshot.engine_requests.items():
        add(names.ENGINE_REQUESTS, count, state=state)
    if snapshot.report is not None:
        add(names.STEP, snapshot.report.step)
        add(names.TOTAL_STEPS, snapshot.report.total_steps)
        add(names.STAGE, 1, stage=snapshot.report.stage)
        if snapshot.report.tokens_per_second is not None:
            add(names.TOKENS_PER_SECOND, snapshot.report.tokens_per_second)
        if snapshot.report.latest_checkpoint_step is not None:
            add(names.LATEST_CHECKPOINT_STEP, snapshot.report.latest_checkpoint_step)

    for name, values in series.items():
        family = GaugeMetricFamily(name, names.HELP[name], labels=[label for label, _ in next(iter(values))])
        for pairs, value in values.items():
            family.add_metric([text for _, text in pairs], value)
        yield family
    for name, total in ((names.TOKENS_TOTAL, snapshot.tokens), (names.STEPS_TOTAL, snapshot.steps)):
        counter = CounterMetricFamily(name, names.HELP[name], labels=list(target))
        counter.add_metric(list(target.values()), total)
        yield counter


def label_engines(snapshot: Snapshot, engines: Mapping[int, Iterable[Metric]]) -> Iterator[Metric]:
    """Yield the engines' own metrics, one family for each name. Each series has the labels job, namespace and engine.

    `engines`: number of the engine -> its families.
    """
    families: dict[str, Metric] = {}
    for number, metrics in engines.items():
        target = {"job": snapshot.job, "namespace": snapshot.namespace, "engine": str(number)}
        for metric in metrics:
            family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                family.add_sample(sample.name, target | sample.labels, sample.value)
    yield from families.values()
