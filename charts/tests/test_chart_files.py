"""Files of the chart that need no Helm: the copies of the CRDs, values and their schema, the dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from rlt_api.prometheus_names import NAMES
from rlt_operator.metrics import REGISTRY

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/rlt-operator"
DASHBOARD = json.loads((CHART / "dashboards/rlt-training.json").read_text())
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def operator_names() -> set[str]:
    return {family.name + suffix for family in REGISTRY.collect() for suffix in SUFFIXES[family.type]}


def queries() -> Iterator[tuple[str, str]]:
    """Yield the place and the PromQL of each query of the dashboard."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def leaves(values: dict[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield key
        if isinstance(value, dict) and key not in ("labels", "requests", "limits"):
            yield from leaves(value)


def test_the_crds_of_the_chart_equal_those_of_the_repository() -> None:
    crds = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert crds
    assert {path.name: path.read_text() for path in (CHART / "crds").iterdir()} == crds


def test_operator_or_trainer_serves_every_metric_of_the_dashboard() -> None:
    served = NAMES | operator_names()
    for where, query in queries():
        queried = set(re.findall(r"\brlt_\w+", query))
        assert queried, where
        assert queried <= served, f"{where}: {queried - served}"


def test_every_panel_has_a_description_and_no_panels_overlap() -> None:
    used_cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]
        grid = panel["gridPos"]
        cells = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not cells & used_cells, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        used_cells |= cells
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)


def test_the_dashboard_shows_learning_throughput_step_time_and_fleet() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Learning", "Throughput", "Step time", "Fleet"]
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "namespace", "job"]


def test_every_value_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    commented = {line.split(":")[0].strip() for before, line in pairwise(lines) if before.strip().startswith("#")}
    names = set(leaves(yaml.safe_load("\n".join(lines))))
    sections = {"metrics", "enabled", "requests", "limits", "dashboard", "userRoles"}  # their keys have comments
    assert names - commented <= sections | {"labels"}


def test_the_schema_contains_exactly_the_objects_of_the_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for name in ("image", "metrics", "dashboard", "webhook", "userRoles"):
        assert set(schema["properties"][name]["properties"]) == set(values[name])
        assert schema["properties"][name]["additionalProperties"] is False
