"""A job that is followed in a notebook: its state, a progress bar and charts of its metrics, updated in place.

The output is HTML that needs no widget and no script. Outside of a notebook the state is printed when it changes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any
from xml.etree.ElementTree import Element, tostring

from rlt.job_state import Job, get_phase, summarize
from rlt.metric_text import Step
from rlt.notebook.charts import draw_learning
from rlt.notebook.markup import element

Steps = Mapping[int, Step]
"""Metrics by step."""


class LiveView:
    """One output of a notebook cell, or lines of text elsewhere."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._printed = ""

    def update(self, job: Job, steps: Sequence[Step]) -> None:
        """Replace what is shown."""
        if not is_notebook():
            if (summary := summarize(job)) != self._printed:
                print(summary, flush=True)
            self._printed = summary
            return
        text = f"{job['metadata']['name']}: {summarize(job)}"
        data = {"text/html": build_view(job, steps), "text/plain": text}
        if self._handle is None:
            from IPython.display import display  # a kernel has it

            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def build_view(job: Job, steps: Sequence[Step]) -> str:
    """Build the HTML of a job: phase, progress and a chart of each metric."""
    progress = job.get("status", {}).get("progress")
    phase = get_phase(job)
    bar = {"value": progress["step"], "max": progress["totalSteps"]} if progress and progress["totalSteps"] else None
    charts = [_build_card(title, chart) for title, chart in draw_learning(steps)] if steps else []
    root = element(
        "div",
        element("h3", job["metadata"]["name"], element("span", phase, class_=f"phase {phase}")),
        element("p", summarize(job), class_="muted"),
        element("progress", **bar) if bar else None,
        element("div", *charts, class_="grid-of-cards") if charts else None,
        class_="rlt-view",
    )
    style = resources.files(__package__).joinpath("style.css").read_text()
    return f"<style>{style}</style>{tostring(root, encoding='unicode', method='html')}"


def keep_steps(steps: Steps, progress: int) -> Steps:
    """Drop the steps after `progress`, the completed steps of the job: after a restart it repeats them."""
    return {number: step for number, step in steps.items() if number <= progress}


def _build_card(title: str, chart: Element) -> Element:
    return element("div", element("h3", title), chart, class_="card")
