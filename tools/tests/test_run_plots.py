"""The plots of docs/read-a-run.md."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from run_plots import build_run_plots, draw_plot

PAGE = Path(__file__).parents[2] / "docs/read-a-run.md"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_shows_each_plot() -> None:
    plots = build_run_plots()
    assert len(plots) == PAGE.read_text().count("(images/run-")
    for name, text in plots.items():
        assert f"(images/{name})" in PAGE.read_text()
        assert len(text) < 30_000
        lines = fromstring(text).findall(f"{SVG}polyline")
        assert [len(line.attrib["points"].split()) for line in lines] == [100, 91], name


def test_a_metric_without_a_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="actor/entropy has no finite value"):
        draw_plot({"step": [1, 2], "actor/entropy": [float("nan")] * 2}, "actor/entropy", "nats")
