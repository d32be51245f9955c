"""The files of the alerts: Prometheus rules for the chart, and the page of the runbooks."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import yaml

from monitoring.alerts import ALERTS, PAGE, Alert

HEADER = "# Generated from tools/monitoring/alerts.py by `make generate`. Do not edit.\n"
INTRODUCTION = """# Runbooks of the alerts
Each alert of the chart links to its section. `alerts.enabled` creates the alerts as a PrometheusRule. They read the
metrics of operator and drivers: enable `metrics.serviceMonitor` and `metrics.podMonitor`, too. This page is generated
from `tools/monitoring/alerts.py`.
"""


def build_rules() -> str:
    """Build the groups of rules, as in a file of Prometheus."""
    groups = [
        {"name": f"rlt-{name}", "rules": [_build_rule(alert) for alert in alerts]}
        for name, alerts in groupby(ALERTS, lambda alert: alert.group)
    ]
    return HEADER + yaml.dump({"groups": groups}, sort_keys=False, width=120)


def build_runbooks() -> str:
    """Build the page of the runbooks."""
    return INTRODUCTION + "".join(map(_build_section, ALERTS))


def _build_rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.meaning,
            "runbook_url": f"{PAGE}#{alert.name.lower()}",
        },
    }


def _build_section(alert: Alert) -> str:
    after = "" if alert.lasting == "0m" else f", after {alert.lasting}"
    lines = ["", f"## {alert.name}", f"{alert.meaning} Severity {alert.severity}{after}.", "", "Inspect:", ""]
    lines += [f"- {text}" for text in alert.inspect]
    lines += ["", "Fix:", "", *(f"- {text}" for text in alert.act), ""]
    lines += ["Expression:", "", "```text", alert.expression, "```"]
    return "".join(f"{line}\n" for line in lines)
