"""All dashboards, and their files in the chart."""

from __future__ import annotations

import json

from monitoring.fleet_dashboard import FLEET
from monitoring.grafana import build_dashboard
from monitoring.operator_dashboard import OPERATOR
from monitoring.run_dashboard import RUN

DASHBOARDS = (RUN, FLEET, OPERATOR)


def build_dashboard_files() -> dict[str, str]:
    """Build the JSON of each dashboard: file name -> text."""
    return {f"{each.uid}.json": json.dumps(build_dashboard(each), indent=1) + "\n" for each in DASHBOARDS}
