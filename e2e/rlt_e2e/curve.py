"""Plot the reward of a run: in the terminal and as a PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import plotext


def rolling_mean(values: list[float], window: int) -> list[float]:
    """Return the mean of each value and up to window - 1 values before it."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(window, i + 1) for i in range(len(values))]


def render_curve(rewards: list[float], *, width: int = 78, height: int = 16) -> str:
    """Return the smoothed curve as text without color."""
    plotext.clear_figure()
    plotext.plot_size(width, height)
    plotext.theme("clear")
    plotext.plot(list(range(1, len(rewards) + 1)), rolling_mean(rewards, 5), marker="braille")
    plotext.title("mean reward (mean of 5 steps)")
    plotext.xlabel("step")
    lines = str(plotext.uncolorize(plotext.build())).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def write_png(rewards: list[float], path: Path, *, title: str) -> None:
    """Write the reward of each step and the smoothed curve."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    steps = list(range(1, len(rewards) + 1))
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, rewards, color="#9ecae1", linewidth=1, label="each step")
    axes.plot(steps, rolling_mean(rewards, 10), color="#08519c", linewidth=2, label="mean of 10 steps")
    axes.set(title=title, xlabel="step", ylabel="mean reward", ylim=(0, None), xlim=(1, len(rewards)))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
