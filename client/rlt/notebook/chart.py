"""Charts of metrics as SVG. Colors are the classes s0 to s7 of the style sheet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from rlt.metric_text import format_number
from rlt.notebook.markup import element

WIDTH = 400
HEIGHT = 160
LEFT = 60
RIGHT = 390
TOP = 22
BOTTOM = 140
"""The lines are inside of these four edges, the texts outside."""
MAX_POINTS = 300
"""Maximum number of points of a line. Steps are averaged to them."""
NUM_COLORS = 8

Points = Sequence[tuple[float, float | None]]
"""Step and value. None is not finite, and interrupts the line."""


def draw_lines(series: Mapping[str, Points], unit: str) -> Element | None:
    """Lines from the first to the last step and from the lowest to the highest value. None without a finite value.

    Two lines or more have a legend.
    """
    thinned = {name: thin(points) for name, points in series.items()}
    drawn = {name: points for name, points in thinned.items() if any(value is not None for _, value in points)}
    if not drawn:
        return None
    steps = [step for points in drawn.values() for step, _ in points]
    values = [value for points in drawn.values() for _, value in points if value is not None]
    first = min(steps)
    last = max(steps)
    low = min(values)
    high = max(values)

    def place(step: float, value: float) -> str:
        x = (step - first) / (last - first) if last > first else 0.5
        y = (value - low) / (high - low) if high > low else 0.5
        return f"{LEFT + (RIGHT - LEFT) * x:.1f},{BOTTOM - (BOTTOM - TOP) * y:.1f}"

    lines = [
        element("polyline", points=" ".join(place(*point) for point in part), class_=f"s{color % NUM_COLORS}")
        for color, points in enumerate(drawn.values())
        for part in _split(points)
    ]
    texts = [
        element("text", format_number(high), x=LEFT - 6, y=TOP + 4, class_="end"),
        element("text", unit, x=0, y=10),
        element("text", format_number(low), x=LEFT - 6, y=BOTTOM + 4, class_="end"),
        element("text", f"step {first:.0f}", x=LEFT, y=HEIGHT - 4),
        element("text", f"{last:.0f}", x=RIGHT, y=HEIGHT - 4, class_="end"),
    ]
    box = element("path", d=f"M{LEFT},{TOP}V{BOTTOM}H{RIGHT}", class_="axis")
    label = f"{', '.join(drawn)} by step"
    svg = element("svg", box, *lines, *texts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)
    return element("div", svg, _draw_legend(list(drawn)) if len(drawn) > 1 else None)


def thin(points: Points) -> list[tuple[float, float | None]]:
    """The means of neighbors, at most MAX_POINTS. Values that are not finite count as None."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], _mean([value for _, value in group])) for group in groups]


def _draw_legend(names: Sequence[str]) -> Element:
    keys = [element("span", "● ", class_=f"s{number % NUM_COLORS}") for number in range(len(names))]
    return element("ul", *(element("li", key, name) for key, name in zip(keys, names, strict=True)), class_="legend")


def _split(points: Points) -> Iterator[list[tuple[float, float]]]:
    """The runs of finite values. A value without neighbors is twice in its run: a line of no length is a dot."""
    part: list[tuple[float, float]] = []
    for step, value in [*points, (0.0, None)]:
        if value is not None:
            part.append((step, value))
        elif part:
            yield part if len(part) > 1 else part * 2
            part = []


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None
