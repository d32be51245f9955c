"""What the page reads: a folder of runs, or the jobs of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlt.metric_text import Step
from rlt.runs.pages import RolloutQuery
from rlt.runs.run import Run

Json = dict[str, Any]


@dataclass(frozen=True)
class UsageQuery:
    """Which accelerator hours to add up."""

    by: str
    """One of rlt.usage.GROUPS."""
    days: int | None = None
    """Days before today, at most rlt.usage.MAX_DAYS. None: everything."""


class Source(Protocol):
    """Runs by their IDs. Methods raise RltError."""

    @property
    def title(self) -> str:
        """Where the runs are: a path, or a namespace."""

    @property
    def has_usage(self) -> bool:
        """Whether the runs have accelerator hours."""

    async def read_usage(self, query: UsageQuery) -> Json:
        """The accelerator hours of the jobs: see `build_usage`."""

    async def list_runs(self) -> list[Json]:
        """A row for each run: id, name, phase, step, totalSteps, reward, and more."""

    async def describe(self, run: str) -> Json:
        """Everything about a run but its metrics, rollouts and spans."""

    async def read_metrics(self, run: str) -> Json:
        """The metrics of the steps: see `build_columns`."""

    async def read_rollouts(self, run: str, step: int | None, query: RolloutQuery) -> Json:
        """A page of a step's rollouts, by default the latest step's."""

    async def read_spans(self, run: str, step: int) -> Json:
        """The spans of a step."""

    async def read_changes(self, run: str) -> Json:
        """`suites`: the prompts of each whose score has changed, and `notes` on those that are missing."""

    async def list_logs(self, run: str) -> Json:
        """`logs`, each with id and title, and `notes` on those that are missing."""

    async def read_log(self, run: str, log: str) -> Json:
        """The end of a log: see `clean`."""

    async def load_run(self, run: str) -> Run:
        """What a report has of the run."""

    async def get_version(self, run: str | None) -> str:
        """A text that changes when the run, or the list, changes."""


def build_columns(steps: Sequence[Step], notes: Sequence[str]) -> Json:
    """The metrics as columns: `steps`, `seconds` (the duration of all steps up to each), and `metrics` by name.

    None in a column: the step does not have the metric, or it is not a finite number.
    """
    names = dict.fromkeys(name for step in steps for name in step if name != "step")
    seconds = []
    total = 0.0
    for step in steps:
        total += step.get("timing_s/step") or 0.0
        seconds.append(total)
    return {
        "steps": [step["step"] for step in steps],
        "seconds": seconds,
        "metrics": {name: [step.get(name) for step in steps] for name in names},
        "notes": list(notes),
    }


def sample(values: Sequence[float | None], size: int = 40) -> list[float | None]:
    """At most `size` of the values, evenly spaced, with the last one."""
    if len(values) <= size:
        return list(values)
    return [values[round(i * (len(values) - 1) / (size - 1))] for i in range(size)]


def get_text(block: object, *keys: str) -> str:
    """A text in nested JSON objects. Empty if it is missing."""
    for key in keys:
        block = block.get(key) if isinstance(block, Mapping) else None
    return block if isinstance(block, str) else ""
