"""Charts of metrics as SVG. Colors are classes of the style sheet: s0 to s7, and those of axes and texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from rlt.metric_text import format_number
from rlt.notebook.markup import element

WIDTH, HEIGHT = 400, 190
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 12, 34
"""Margins for the texts of the axes."""
MAX_POINTS = 300
"""Maximum number of points of a line. Steps are averaged to them."""
NUM_COLORS = 8

Points = Sequence[tuple[float, float | None]]
"""Step and value. None is not finite, and interrupts the line."""


@dataclass(frozen=True)
class Axis:
    """The values at both ends of an axis, and at its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]


def choose_axis(values: Sequence[float], count: int = 4, *, whole: bool = False) -> Axis:
    """An axis with about `count` round ticks that contains the values. `whole`: ticks are integers."""
    low, high = min(values), max(values)
    if high == low:
        low, high = (low - 1, high + 1) if low == 0 or whole else (low - abs(low) / 2, high + abs(high) / 2)
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    size = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    if whole:
        size = max(1.0, size)
    first = math.ceil(low / size - 1e-9)
    ticks = tuple(number * size for number in range(first, math.floor(high / size + 1e-9) + 1))
    return Axis(low, high, ticks)


def draw_lines(series: Mapping[str, Points], unit: str) -> Element | None:
    """Lines over the steps, with a legend for two or more. None without a finite value."""
    thinned = {name: thin(points) for name, points in series.items()}
    drawn = {name: points for name, points in thinned.items() if any(value is not None for _, value in points)}
    if not drawn:
        return None
    steps = choose_axis([step for points in drawn.values() for step, _ in points], 5, whole=True)
    values = choose_axis([value for points in drawn.values() for _, value in points if value is not None])
    frame = _Frame(steps, values)
    body = [
        each for color, points in enumerate(drawn.values()) for each in _draw_line(frame, points, color % NUM_COLORS)
    ]
    svg = _draw_frame(frame, unit, body, ", ".join(drawn))
    return element("div", svg, draw_legend(list(drawn)) if len(drawn) > 1 else None)


def draw_legend(names: Sequence[str]) -> Element:
    """The color of each name."""
    return element(
        "ul",
        *(
            element("li", element("span", class_=f"key s{number % NUM_COLORS}"), name)
            for number, name in enumerate(names)
        ),
        class_="legend",
    )


def thin(points: Points) -> list[tuple[float, float | None]]:
    """The means of neighbors, at most MAX_POINTS. Values that are not finite count as None."""
    size = math.ceil(len(points) / MAX_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], _mean([value for _, value in group])) for group in groups]


@dataclass(frozen=True)
class _Frame:
    """Coordinates of the area inside of the axes."""

    steps: Axis
    values: Axis

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - self.steps.low) / (self.steps.high - self.steps.low)

    def y(self, value: float) -> float:
        height = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - height * (value - self.values.low) / (self.values.high - self.values.low)


def _draw_frame(frame: _Frame, unit: str, body: Sequence[Element], label: str) -> Element:
    right, bottom, middle = WIDTH - RIGHT, HEIGHT - BOTTOM, (TOP + HEIGHT - BOTTOM) / 2
    grid = []
    for tick in frame.values.ticks:
        y = _round(frame.y(tick))
        grid.append(element("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid"))
        grid.append(element("text", format_number(tick), x=LEFT - 6, y=_round(frame.y(tick) + 3.5), class_="end"))
    for tick in frame.steps.ticks:
        grid.append(element("text", format_number(tick), x=_round(frame.x(tick)), y=bottom + 14, class_="middle"))
    axes = [
        element("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"),
        element("text", "step", x=_round((LEFT + right) / 2), y=HEIGHT - 4, class_="middle"),
        element("text", unit, x=10, y=middle, class_="middle", transform=f"rotate(-90 10 {middle})") if unit else None,
    ]
    return element(
        "svg", *grid, *body, *axes, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{label} by step"
    )


def _draw_line(frame: _Frame, points: Points, color: int) -> list[Element]:
    """A line for each run of finite values; a dot for a value without neighbors, and for each of few values."""
    parts: list[list[tuple[float, float]]] = [[]]
    for step, value in points:
        if value is None:
            parts.append([])
        else:
            parts[-1].append((frame.x(step), frame.y(value)))
    drawn = []
    for part in filter(None, parts):
        path = " ".join(f"{_round(x)},{_round(y)}" for x, y in part)
        drawn.append(element("polyline", points=path, class_=f"s{color}"))
        if len(part) == 1 or len(points) <= 20:
            drawn += [element("circle", cx=_round(x), cy=_round(y), r=2.2, class_=f"f{color}") for x, y in part]
    return drawn


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None


def _round(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
