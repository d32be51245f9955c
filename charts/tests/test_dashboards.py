"""The dashboards: every query parses, queries exported metrics, and returns data for the last step of the demo.

Prometheus' own parser and engine (promtool) evaluate the queries.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from recorded_demo import build_driver_families, build_operator_families, list_series, read_steps

from monitoring.dashboards import DASHBOARDS, build_dashboard_files
from monitoring.declarations import EXTERNAL, list_served_names
from monitoring.grafana import Dashboard
from monitoring.promql import list_metrics
from rlt_e2e.prometheus import promtool

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
def test_every_panel_has_data_for_the_recorded_demo(tmp_path: Path) -> None:
    tests = [
        {"expr": f"count({resolve(query.expression)}) > bool 0", "eval_time": "1h", "exp_samples": [{"value": 1}]}
        for dashboard in DASHBOARDS
        for panel in dashboard.list_panels()
        if not panel.requires or panel.title == "KL to the reference"
        for query in panel.queries
    ]
    assert len(tests) >= 50
    steps = read_steps()
    driver = build_driver_families(steps, len(steps), started=time.time())
    served = (*list_series(driver), *list_series(build_operator_families(len(steps), len(steps))))
    series = [{"series": name, "values": f"{value}+0x60"} for name, value in served]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": tests}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    promtool("test", "rules", str(file))


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
