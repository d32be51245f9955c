"""Draw a dashboard as Grafana lays it out: its JSON, with the results of its queries.

Grafana is in no registry that the tests use: Debian has no package, and its Go module contains no built pages. This
draws stats, time series and annotations, which shows queries, legends, units, limits, stacking and the layout. It knows
nothing of Grafana's own code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

from rlt_e2e.prometheus import Prometheus, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = Mapping[str, Any]
COLUMNS = 24
MARGIN = 0.008
"""At the left and the right, as a share of the width."""
COLUMN = (1 - 2 * MARGIN + 0.004) / COLUMNS
CELL = (0.62, 0.32)
"""Width and height of a grid cell, in inches."""
COLORS = ("#5794f2", "#73bf69", "#f2cc0c", "#ff780a", "#f2495c", "#b877d9", "#ca95e5", "#ffb357", "#8ab8ff", "#96d98d")
"""Of Grafana's classic palette."""
SHORT = ((1e9, " G"), (1e6, " M"), (1e3, " k"))
BYTES = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))
POINTS = 300
"""Points of a series, as the pixels of a panel limit them in Grafana."""


def _scale(value: float, factors: Sequence[tuple[float, str]], unit: str = "") -> str:
    factor, name = next(((factor, name) for factor, name in factors if abs(value) >= factor), (1, unit))
    return f"{value / factor:.3g}{name}"


UNITS: Mapping[str, Callable[[float], str]] = {
    "short": lambda value: _scale(value, SHORT),
    "none": lambda value: f"{value:g}",
    "percent": lambda value: f"{value:.3g} %",
    "percentunit": lambda value: f"{100 * value:.3g} %",
    "s": lambda value: _scale(value, ((3600, " h"), (60, " min")), " s"),
    "bytes": lambda value: _scale(value, BYTES, " B"),
    "mbytes": lambda value: _scale(value * 2**20, BYTES, " B"),
    "Bps": lambda value: _scale(value, BYTES, " B") + "/s",
    "ops": lambda value: _scale(value, SHORT) + " ops/s",
    "reqps": lambda value: _scale(value, SHORT) + " req/s",
    "watt": lambda value: _scale(value, SHORT) + " W",
}
"""Grafana's name of a unit -> the text of a value."""


@dataclass(frozen=True)
class Period:
    """What a dashboard shows, in Unix time, and the values of its variables."""

    start: float
    end: float
    variables: Mapping[str, str]

    def resolve(self, expression: str) -> str:
        """Replace the variables. Raises KeyError for an unknown one."""
        return re.sub(r"\$([a-z_]\w*)", lambda found: self.variables[found[1]], expression)


def draw_dashboard(
    dashboard: Json, server: Prometheus, period: Period, path: Path, *, rows: Sequence[str] = ()
) -> dict[str, int]:
    """Draw the dashboard as a PNG. Return the number of series of each panel.

    `rows`: titles of the rows to draw. Default: all.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = _select_rows(dashboard["panels"], rows)
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    with pyplot.style.context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = pyplot.figure(figsize=(COLUMNS * CELL[0], height * CELL[1] + 0.4), facecolor="#f4f5f5")
        figure.text(MARGIN, 1 - 0.12 / figure.get_figheight(), dashboard["title"], fontsize=13, va="top")
        drawn = {}
        for panel in panels:
            if panel["type"] == "row":
                left, top = _locate(figure, panel["gridPos"])
                figure.text(left, top, panel["title"], fontsize=10, weight="bold", va="top")
                continue
            series = _query(panel, server, period)
            axes = _add_axes(figure, panel, legends=len(series))
            drawn[panel["title"]] = len(series)
            if not series:
                axes.set_axis_off()
                axes.text(0.5, 0.5, "No data", transform=axes.transAxes, ha="center", va="center", color="#8e8e8e")
            elif panel["type"] == "timeseries":
                _draw_series(axes, panel, series, period)
                _draw_annotations(axes, dashboard["annotations"]["list"], server, period)
            else:
                _draw_values(axes, panel, series)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=100)
        pyplot.close(figure)
    return drawn


def _select_rows(panels: Sequence[Json], rows: Sequence[str]) -> list[dict[str, Any]]:
    """The panels of these rows, moved up."""
    groups: list[list[Json]] = []
    for panel in panels:
        if panel["type"] == "row":
            groups.append([])
        groups[-1].append(panel)
    selected: list[dict[str, Any]] = []
    top = 0
    for group in groups:
        if rows and group[0]["title"] not in rows:
            continue
        first = group[0]["gridPos"]["y"]
        selected += [
            {**each, "gridPos": {**each["gridPos"], "y": top + each["gridPos"]["y"] - first}} for each in group
        ]
        top += max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in group) - first
    return selected


def _locate(figure: Figure, place: Json) -> tuple[float, float]:
    """The left and the top of a place in the grid, as shares of the figure."""
    return MARGIN + place["x"] * COLUMN, 1 - (place["y"] * CELL[1] + 0.45) / figure.get_figheight()


def _add_axes(figure: Figure, panel: Json, *, legends: int) -> Axes:
    """Draw the card of the panel and return its axes."""
    from matplotlib.patches import Rectangle

    place = panel["gridPos"]
    left, top = _locate(figure, place)
    line = CELL[1] / figure.get_figheight()
    width = place["w"] * COLUMN - 0.004
    height = (place["h"] - 0.25) * line
    card = Rectangle((left, top - height), width, height, facecolor="white", edgecolor="#dcdfe3", linewidth=0.6)
    card.set(transform=figure.transFigure, zorder=-1)
    figure.add_artist(card)
    figure.text(left + 0.005, top - 0.3 * line, panel["title"], fontsize=8.5, weight="medium", va="top")
    if panel["type"] != "timeseries" or not legends:
        return figure.add_axes((left, top - height, width, height - line))
    below = (1.3 + 0.45 * math.ceil(legends / _count_columns(panel))) * line
    return figure.add_axes((left + 0.042, top - height + below, width - 0.055, height - below - 1.2 * line))


def _count_columns(panel: Json) -> int:
    """Columns of the legend."""
    return max(1, int(panel["gridPos"]["w"]) // 4)


def _query(panel: Json, server: Prometheus, period: Period) -> list[tuple[str, Series]]:
    """The series of all targets with their legends."""
    step = max(1.0, (period.end - period.start) / POINTS)
    found = []
    for target in panel["targets"]:
        expression = period.resolve(target["expr"])
        if target.get("instant"):
            results = server.query(expression, at=period.end)
        else:
            results = server.query_range(expression, start=period.start, end=period.end, step=step)
        found += [(_fill(target["legendFormat"], series.labels), series) for series in results]
    return found


def _fill(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), legend)


def _draw_series(axes: Axes, panel: Json, series: Sequence[tuple[str, Series]], period: Period) -> None:
    from matplotlib.ticker import FuncFormatter

    defaults = panel["fieldConfig"]["defaults"]
    times = sorted({moment for _, each in series for moment, _ in each.samples})
    rows = [[dict(each.samples).get(moment, math.nan) for moment in times] for _, each in series]
    legends = [legend for legend, _ in series]
    colors = [COLORS[index % len(COLORS)] for index in range(len(series))]
    if defaults["custom"]["stacking"]["mode"] == "normal":
        filled = [[0.0 if math.isnan(value) else value for value in row] for row in rows]
        axes.stackplot(times, filled, labels=legends, colors=colors, alpha=0.8)
    else:
        for row, legend, color in zip(rows, legends, colors, strict=True):
            axes.plot(times, row, label=legend, color=color, linewidth=1.4)
    unit = UNITS[defaults["unit"]]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{datetime.fromtimestamp(value, UTC):%H:%M:%S}"))
    axes.locator_params(axis="x", nbins=max(2, panel["gridPos"]["w"] // 2))
    axes.locator_params(axis="y", nbins=5)
    axes.set_xlim(period.start, period.end)
    axes.set_ylim(bottom=defaults.get("min"), top=defaults.get("max"))
    axes.grid(alpha=0.3)
    if any(legends):
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(0, -0.15),
            ncols=_count_columns(panel),
            frameon=False,
            fontsize=7,
            borderpad=0,
            labelspacing=0.3,
        )


def _draw_annotations(axes: Axes, annotations: Sequence[Json], server: Prometheus, period: Period) -> None:
    step = max(1.0, (period.end - period.start) / POINTS)
    for annotation in annotations:
        series = server.query_range(period.resolve(annotation["expr"]), start=period.start, end=period.end, step=step)
        samples = [sample for each in series for sample in each.samples]
        at_value = annotation["useValueForTime"]
        for moment in {value / 1000 if at_value else time for time, value in samples}:
            if period.start < moment < period.end:
                axes.axvline(moment, color=annotation["iconColor"], linestyle="--", linewidth=0.8, alpha=0.6)


def _draw_values(axes: Axes, panel: Json, series: Sequence[tuple[str, Series]]) -> None:
    """A stat, or the rows of a table."""
    unit = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    axes.set_axis_off()
    if panel["type"] == "stat":
        (legend, first), *_ = series
        axes.text(0.5, 0.62, unit(first.value), transform=axes.transAxes, ha="center", va="center", fontsize=18)
        axes.text(0.5, 0.18, legend, transform=axes.transAxes, ha="center", va="center", color="#6e6e6e")
        return
    lines = [f"{', '.join(each.labels.values())}: {legend} {unit(each.value)}" for legend, each in series]
    axes.text(0.01, 0.98, "\n".join(lines), transform=axes.transAxes, va="top", wrap=True)
