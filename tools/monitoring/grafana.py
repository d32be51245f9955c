"""Grafana dashboards as values, and their JSON (https://grafana.com/docs/grafana/latest/dashboards/json-model/)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

WIDTH = 24
"""Columns of Grafana's grid."""
HEIGHTS = {"timeseries": 8, "stat": 4, "table": 10}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
MAX_GAP_MS = 120_000
"""Samples further apart are not connected: a restart shows as a gap."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A query and the legend of its series."""

    expression: str
    legend: str = "{{namespace}}/{{job}}"


@dataclass(frozen=True)
class Panel:
    """One panel."""

    title: str
    description: str
    queries: tuple[Query, ...]
    _: KW_ONLY
    unit: str = "short"
    """Grafana's name of the unit."""
    width: int = 8
    type: Literal["timeseries", "stat", "table"] = "timeseries"
    stacked: bool = False
    minimum: float | None = None
    maximum: float | None = None
    requires: str = ""
    """What a job needs for data in this panel. Empty: every job has them."""


@dataclass(frozen=True)
class Row:
    """A titled group of panels, from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A variable with the values of a label. All values are selected at first."""

    name: str
    label: str
    query: str


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """Marks at the times of samples; with `at_value`, at the times that are their values, in milliseconds."""

    name: str
    expression: str
    text: str
    color: str
    at_value: bool = False


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard with a variable for the data source."""

    uid: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    def list_panels(self) -> Iterator[Panel]:
        """Yield the panels of all rows."""
        for row in self.rows:
            yield from row.panels


def build_dashboard(dashboard: Dashboard) -> Json:
    """Build the JSON of a dashboard."""
    datasource = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["rlt"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [_build_link()],
        "annotations": {"list": [_build_annotation(each) for each in dashboard.annotations]},
        "templating": {"list": [datasource, *(_build_variable(each) for each in dashboard.variables)]},
        "panels": list(_build_panels(dashboard.rows)),
    }


def _build_link() -> Json:
    link = {"type": "dashboards", "title": "rlt", "tags": ["rlt"], "asDropdown": True, "icon": "external link"}
    return {**link, "includeVars": True, "keepTime": True}


def _build_annotation(annotation: Annotation) -> Json:
    return {
        "name": annotation.name,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": annotation.color,
        "expr": annotation.expression,
        "titleFormat": annotation.name,
        "textFormat": annotation.text,
        "useValueForTime": annotation.at_value,
    }


def _build_variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _build_panels(rows: tuple[Row, ...]) -> Iterator[Json]:
    number = 1
    top = 0
    for row in rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
        }
        number += 1
        top += 1
        left = 0
        height = 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top += height
                left = 0
                height = 0
            height = max(height, HEIGHTS[panel.type])
            place = {"h": HEIGHTS[panel.type], "w": panel.width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **_build_panel(panel)}
            number += 1
            left += panel.width
        top += height


def _build_panel(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit}
    defaults |= {"min": panel.minimum} if panel.minimum is not None else {}
    defaults |= {"max": panel.maximum} if panel.maximum is not None else {}
    if panel.type == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1 if panel.stacked else 2,
            "fillOpacity": 60 if panel.stacked else 0,
            "showPoints": "never" if panel.stacked else "auto",
            "spanNulls": MAX_GAP_MS,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    built: Json = {
        "type": panel.type,
        "title": panel.title,
        "description": panel.description + (f" Requires {panel.requires}." if panel.requires else ""),
        "datasource": SOURCE,
        "targets": [_build_target(panel, index, query) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _build_options(panel),
    }
    if panel.type == "table":
        built["transformations"] = [{"id": "merge", "options": {}}, _hide_columns(panel)]
    return built


def _build_target(panel: Panel, index: int, query: Query) -> Json:
    target: Json = {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query.expression}
    if panel.type == "timeseries":
        return {**target, "legendFormat": query.legend}
    return {**target, "legendFormat": query.legend, "instant": True, "range": False} | (
        {"format": "table"} if panel.type == "table" else {}
    )


def _build_options(panel: Panel) -> Json:
    if panel.type == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "none", "textMode": "value_and_name"}
    if panel.type == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _hide_columns(panel: Panel) -> Json:
    """Name the value of each query by its legend, and hide the columns of Prometheus."""
    names = {f"Value #{chr(ord('A') + index)}": query.legend for index, query in enumerate(panel.queries)}
    return {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}
