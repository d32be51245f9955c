"""Two or more runs side by side: configuration, metrics, time to a reward, and throughput."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from rlt.report.suite_differences import SuiteDifference, compare_suites
from rlt.report.summary import (
    MetricSummary,
    compute_throughput,
    compute_time_shares,
    find_best_mean_reward,
    find_step_reaching,
    summarize_metrics,
)
from rlt.runs.run import Run
from rlt_api.schema.model_schema import walk_leaves
from rlt_api.spec.job_spec import RLTrainingJobSpec


@dataclass(frozen=True)
class Row:
    """A line of a table: one value for each run. None: the run does not have it."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Comparison:
    """What differs between runs. The values of each row are in the order of `runs`."""

    runs: tuple[Run, ...]
    configuration: Mapping[str, tuple[str | None, ...]]
    """Path of each field that differs -> its values as JSON. None: the field is not set."""
    metrics: tuple[Row, ...]
    """Final and best values."""
    reward: float | None
    """The reward of the rows `reached`: by default the highest that all runs reach."""
    reached: tuple[Row, ...]
    """Steps and seconds until the mean reward of ten steps is `reward`."""
    throughput: tuple[Row, ...]
    suites: Mapping[str, tuple[SuiteDifference | None, ...]]
    """Suite -> the differences of the other runs to the first one, over the prompts that both have."""
    summaries: tuple[Mapping[str, MetricSummary], ...]
    """The metrics of each run by label."""

    def to_json(self) -> dict[str, Any]:
        """The comparison as data."""

        def rows(found: Sequence[Row]) -> list[dict[str, Any]]:
            return [{"name": each.label, "values": list(each.values)} for each in found]

        return {
            "runs": [
                {
                    "name": run.name,
                    "source": run.source,
                    "phase": run.phase,
                    "steps": len(run.steps),
                    "notes": list(run.notes),
                }
                for run in self.runs
            ],
            "configuration": [{"field": path, "values": list(found)} for path, found in self.configuration.items()],
            "metrics": rows(self.metrics),
            "reward": self.reward,
            "reached": rows(self.reached),
            "throughput": rows(self.throughput),
            "suites": {
                name: [each and asdict(each) for each in differences] for name, differences in self.suites.items()
            },
        }


def compare_runs(runs: Sequence[Run], reward: float | None = None) -> Comparison:
    """Compare runs. `reward`: the mean reward whose first step is looked up."""
    summaries = [{each.label: each for each in summarize_metrics(run.steps)} for run in runs]
    if reward is None:
        best = [find_best_mean_reward(run.steps) for run in runs]
        reward = min((each for each in best if each is not None), default=None)
    reached = [None if reward is None else find_step_reaching(run.steps, reward) for run in runs]
    speeds = [compute_throughput(run.steps) for run in runs]
    shares = [compute_time_shares(run.steps) for run in runs]
    phases = list(dict.fromkeys(phase for share in shares for phase, part in share.items() if part >= 0.01))
    return Comparison(
        runs=tuple(runs),
        configuration=compare_configurations([run.config for run in runs]),
        metrics=tuple(_build_metric_rows(summaries)),
        reward=reward,
        reached=(
            Row("steps", tuple(each and each[0] for each in reached)),
            Row("seconds", tuple(each and each[1] for each in reached)),
        ),
        throughput=(
            Row("tokens per second", tuple(each.tokens_per_second for each in speeds)),
            Row("seconds a step, median", tuple(each.median_step_seconds for each in speeds)),
            Row("seconds of all steps", tuple(each.total_seconds for each in speeds)),
            *(Row(f"share of {phase}", tuple(share.get(phase) for share in shares)) for phase in phases),
        ),
        suites=compare_suites([run.scores for run in runs]),
        summaries=tuple(summaries),
    )


def compare_configurations(configs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str | None, ...]]:
    """The fields that differ, by path. Blocks that a config does not have at all are left out.

    The config of a run directory has fewer blocks than the spec of a job, and lacks fields with their default: a field
    that is missing in a block has its default. Numbers are equal by their value. An empty config is not recorded: it
    does not differ.
    """
    recorded = [set(config) for config in configs if config]
    common = set.intersection(*recorded) if recorded else set()
    flat = [dict(flatten({key: config[key] for key in config if key in common})) for config in configs]
    paths = dict.fromkeys(path for each in flat for path in each)
    values = {path: tuple(_get_value(each, path) for each in flat) for path in paths}
    return {
        path: found
        for path, found in values.items()
        if len({_to_number(each) for each, config in zip(found, configs, strict=True) if config}) > 1
    }


def _get_value(flat: Mapping[str, str], path: str) -> str | None:
    """The value of a field, or its default if the block exists."""
    block = path.rpartition(".")[0]
    if path in flat or not any(each.startswith(f"{block}.") for each in flat):
        return flat.get(path)
    return _load_defaults().get(re.sub(r"\[\d+\]", "[]", path))


def _to_number(text: str | None) -> str | float | None:
    """The value of a number, such as 1 and 1.0; another value as it is."""
    value = None if text is None else json.loads(text)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else text


@cache
def _load_defaults() -> dict[str, str]:
    """Path of each field with a default -> the default as JSON."""
    fields = walk_leaves(RLTrainingJobSpec, "")
    return {path.lstrip("."): _to_text(node["default"]) for path, node in fields if node.get("default") is not None}


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value as JSON of each field that is set."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            name = key if key.isprintable() else _to_text(key)
            yield from flatten(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for index, each in enumerate(value):
            yield from flatten(each, f"{path}[{index}]")
    elif value not in (None, {}, []):
        yield path, _to_text(value)


def _to_text(value: Any) -> str:
    """The value as JSON, with escapes for characters that control a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def _build_metric_rows(summaries: Sequence[Mapping[str, MetricSummary]]) -> Iterator[Row]:
    for label in dict.fromkeys(label for each in summaries for label in each):
        found = [each.get(label) for each in summaries]
        yield Row(f"{label}, final", tuple(each.final if each else None for each in found))
        if any(each and each.best is not None for each in found):
            yield Row(f"{label}, best", tuple(each.best if each else None for each in found))
