"""Files of the chart that need no Helm: the copies of the CRDs, values and their schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/rlt-operator"


def leaves(values: dict[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield key
        if isinstance(value, dict) and key not in ("labels", "requests", "limits"):
            yield from leaves(value)


def test_the_charts_crds_equal_the_repositorys() -> None:
    crds = {path.name: path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert crds
    assert {path.name: path.read_text() for path in (CHART / "crds").iterdir()} == crds


def test_every_value_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    commented = {line.split(":")[0].strip() for before, line in pairwise(lines) if before.strip().startswith("#")}
    names = set(leaves(yaml.safe_load("\n".join(lines))))
    sections = {
        "metrics",
        "enabled",
        "requests",
        "limits",
        "dashboard",
        "userRoles",
        "alerts",
    }  # their keys have comments
    assert names - commented <= sections | {"labels"}


def test_the_schema_contains_exactly_the_objects_of_the_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for name in ("image", "metrics", "dashboard", "alerts", "webhook", "userRoles"):
        assert set(schema["properties"][name]["properties"]) == set(values[name])
        assert schema["properties"][name]["additionalProperties"] is False


def test_the_annotations_name_the_crds() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    crds = [yaml.safe_load(path.read_text()) for path in (CHART / "crds").iterdir()]
    annotated = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    assert {(each["kind"], each["version"], each["name"]) for each in annotated} == {
        (crd["spec"]["names"]["kind"], version["name"], crd["metadata"]["name"])
        for crd in crds
        for version in crd["spec"]["versions"]
    }
