"""The dashboards, drawn from a recorded run of the demo. UPDATE_IMAGES=1 writes the image of the README."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_demo import write_blocks

from monitoring.dashboards import DASHBOARDS, build_dashboard_files
from monitoring.grafana import Dashboard
from monitoring.run_dashboard import RUN
from rlt_e2e.panels import Period, draw_dashboard
from rlt_e2e.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.apiserver

IMAGE = Path(__file__).parents[2] / "docs/images/dashboard.png"
ROWS = ("Now", "Learning", "Step time")
"""Of the dashboard Run, in the image."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Period]]:
    """A Prometheus that has the recorded run, which ended a minute ago."""
    folder = tmp_path_factory.mktemp("recorded")
    period = write_blocks(folder, end=time.time() - 60)
    with prometheus({"scrape_configs": []}, folder) as server:
        yield server, period


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_every_panel_is_drawn_with_the_recorded_data(
    dashboard: Dashboard, recorded: tuple[Prometheus, Period], tmp_path: Path
) -> None:
    image = tmp_path / "dashboard.png"
    built = json.loads(build_dashboard_files()[f"{dashboard.uid}.json"])
    drawn = draw_dashboard(built, *recorded, image)
    required = {panel.title for panel in dashboard.list_panels() if not panel.requires}
    assert [title for title in required if not drawn[title]] == []
    assert image.read_bytes().startswith(b"\x89PNG")
    if dashboard is RUN and "UPDATE_IMAGES" in os.environ:
        draw_dashboard(built, *recorded, IMAGE, rows=ROWS)
