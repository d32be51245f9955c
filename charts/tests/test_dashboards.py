"""The dashboards: every query parses, queries metrics that are exported, and returns data for a recorded step.

Prometheus' own parser and engine (promtool) evaluate the queries. recorded_step.json is the third step of a training on
a CPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import observed
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from monitoring.dashboards import DASHBOARDS, build_dashboard_files
from monitoring.declarations import EXTERNAL, list_served_names
from monitoring.grafana import Dashboard
from monitoring.promql import list_metrics
from prometheus import promtool
from rlt_api.status import Phase, Progress, ProgressMetrics, RLTrainingJobStatus
from rlt_api.training_config import ProgressReport
from rlt_operator import metrics
from rlt_trainer.telemetry.exposition import Snapshot, build_families

RECORDED = Path(__file__).parent / "recorded_step.json"
VARIABLES = {
    "$namespace": ".*",
    "$job": ".*",
    "$__rate_interval": "5m",
    "$__range": "1h",
}
DASHBOARD = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)


def list_queries(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Yield the place and the PromQL of each query, with values for the variables."""
    for panel in dashboard.list_panels():
        for query in panel.queries:
            yield panel.title, resolve(query.expression)
    for annotation in dashboard.annotations:
        yield annotation.name, resolve(annotation.expression)


def resolve(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


@DASHBOARD
def test_every_queried_metric_is_exported(dashboard: Dashboard) -> None:
    served = list_served_names()
    queries = [*list_queries(dashboard), *((each.name, each.query) for each in dashboard.variables)]
    for where, query in queries:
        queried = list_metrics(query) - {"namespace", "name"}  # the labels of label_values
        assert queried, where
        assert queried <= served, f"{where}: {queried - served}"


def test_ray_has_the_metrics_that_are_queried() -> None:
    from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

    queried = {name.removeprefix("ray_") for name, exporter in EXTERNAL.items() if exporter == "Ray"}
    assert queried
    assert queried <= METRICS_GAUGES.keys()


@pytest.mark.apiserver
def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"query_{number}", "expr": query}
        for number, (_, query) in enumerate(query for each in DASHBOARDS for query in list_queries(each))
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", str(file))


@pytest.mark.apiserver
def test_every_panel_has_data_for_a_recorded_step(tmp_path: Path) -> None:
    tests = [
        {"expr": f"count({resolve(query.expression)}) > bool 0", "eval_time": "1h", "exp_samples": [{"value": 1}]}
        for dashboard in DASHBOARDS
        for panel in dashboard.list_panels()
        if not panel.requires or panel.title == "KL to the reference"
        for query in panel.queries
    ]
    assert len(tests) >= 50
    series = [
        {"series": name, "values": f"{value}+0x60"} for name, value in (*list_driver_series(), *list_operator_series())
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    promtool("test", "rules", str(file))


def list_driver_series() -> Iterator[tuple[str, float]]:
    """Yield the series that a driver exports after the recorded step."""
    recorded = json.loads(RECORDED.read_text())
    report = ProgressReport(
        stage="training",
        step=recorded.pop("step"),
        total_steps=9,
        tokens_per_second=recorded["perf/total_num_tokens"] / recorded["timing_s/step"],
        latest_checkpoint_step=2,
        updated="2026-01-01T00:00:00Z",
    )
    now = time.time()
    requests = {"running": 1, "waiting": 0}
    snapshot = Snapshot(
        "sum", "demo", now, report, recorded, tokens=9, steps=3, checkpoint_timestamp=now, engine_requests=requests
    )

    class Driver(Collector):
        def collect(self) -> Iterator[Any]:
            return build_families(snapshot)

    registry = CollectorRegistry()
    registry.register(Driver())
    yield from list_series(registry)


def list_operator_series() -> Iterator[tuple[str, float]]:
    """Yield the series that the operator exports for a running job."""
    progress = Progress(
        step=3,
        total_steps=9,
        percent=33,
        display="33%",
        last_updated="2026-01-01T00:00:00Z",
        metrics=ProgressMetrics(reward=0.5),
    )
    job = observed.job()
    metrics.RECONCILE_SECONDS.labels(phase="Running").observe(0.01)
    metrics.API_REQUESTS.labels(method="GET", resource="pods", code=200).inc()
    metrics.WATCH_EVENTS.labels(kind="pods").inc()
    metrics.EVENTS.labels(type="Normal").inc()
    metrics.CACHE_OBJECTS.labels(kind="pods").set(2)
    metrics.CACHE_UPDATED.labels(kind="pods").set_to_current_time()
    metrics.JOBS_ENDED.labels(phase="Succeeded", reason="Finished").inc()
    metrics.JOBS.record(job, RLTrainingJobStatus(phase=Phase.RUNNING, progress=progress, gpus=8), ["sum-head"])
    try:
        yield from list_series(metrics.REGISTRY)
    finally:
        metrics.JOBS.forget(job.namespace, job.name)


def list_series(registry: CollectorRegistry) -> Iterator[tuple[str, float]]:
    for family in registry.collect():
        for sample in family.samples:
            labels = ", ".join(f"{label}={json.dumps(value)}" for label, value in sample.labels.items())
            yield f"{sample.name}{{{labels}}}", float(sample.value)


@DASHBOARD
def test_every_panel_has_a_description_and_no_panels_overlap(dashboard: Dashboard) -> None:
    built = json.loads(build_dashboard_files()[f"{dashboard.uid}.json"])
    used_cells: set[tuple[int, int]] = set()
    for panel in built["panels"]:
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        grid = panel["gridPos"]
        cells = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not cells & used_cells, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        used_cells |= cells
    identifiers = [panel["id"] for panel in built["panels"]]
    assert len(set(identifiers)) == len(identifiers)
