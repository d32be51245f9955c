"""The plots of docs/read-a-run.md: SVG of recorded metrics, with colors for light and dark pages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

from rlt.metric_text import WINDOW
from rlt.notebook.chart import HEIGHT, RIGHT, WIDTH, Points, draw_lines
from rlt.notebook.markup import element
from rlt.report.summary import average_latest

RECORD = Path(__file__).parent.parent / "charts/tests/recorded_demo.json"
"""A run of `make demo`: the values of each metric by step."""
PLOTS: Mapping[str, tuple[str, str]] = {
    "reward": ("critic/rewards/mean", "reward"),
    "kl": ("actor/kl_loss", "nats"),
    "entropy": ("actor/entropy", "nats"),
    "clip-fraction": ("actor/pg_clipfrac", "share of tokens"),
    "gradient-norm": ("actor/grad_norm", "norm"),
    "response-length": ("response_length/mean", "tokens"),
}
"""Name of the file -> metric and unit."""
MARGIN = 8
"""Room on the left for values of seven digits."""
STYLE = """
svg { color: #7d8590 }
text { fill: currentColor; font: 11px system-ui, sans-serif }
.end { text-anchor: end }
.axis { fill: none; stroke: currentColor; stroke-opacity: 0.6 }
polyline { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round }
.s0 { color: #3a85d0 } .s1 { color: #d1622b }
"""
"""An image does not have the theme of its page: these colors are readable on white and on black."""


def build_run_plots() -> dict[str, str]:
    """File name -> SVG of each plot: the value of each step, and the mean of WINDOW steps."""
    columns: Mapping[str, Sequence[float]] = json.loads(RECORD.read_text())
    return {f"run-{name}.svg": draw_plot(columns, metric, unit) for name, (metric, unit) in PLOTS.items()}


def draw_plot(columns: Mapping[str, Sequence[float]], metric: str, unit: str) -> str:
    """The SVG of one metric."""
    steps = columns["step"]
    values = columns[metric]
    means = average_latest(values)
    series: dict[str, Points] = {
        "step": list(zip(steps, values, strict=True)),
        f"mean of {WINDOW} steps": list(zip(steps[len(steps) - len(means) :], means, strict=True)),
    }
    drawn = draw_lines(series, unit)
    chart = None if drawn is None else drawn.find("svg")
    if chart is None:
        raise ValueError(f"{RECORD}: {metric} has no finite value")
    chart.set("xmlns", "http://www.w3.org/2000/svg")
    chart.set("viewBox", f"{-MARGIN} 0 {WIDTH + MARGIN} {HEIGHT}")
    chart.set("width", str(WIDTH + MARGIN))
    chart.set("height", str(HEIGHT))
    chart.insert(0, element("style", STYLE))
    chart.extend(_draw_legend(list(series)))
    return tostring(chart, encoding="unicode") + "\n"


def _draw_legend(names: Sequence[str]) -> list[Element]:
    """The names of the lines in their colors, from the right."""
    return [
        element("text", f"― {name}", x=RIGHT - 130 * (len(names) - 1 - color), y=10, class_=f"end s{color}")
        for color, name in enumerate(names)
    ]
