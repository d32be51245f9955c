"""How the accelerators of a training spend their time, for status.usage. Pure.

The driver adds up the seconds of its completed steps, as a mean over all accelerators: rlt's trainer, and the program
that runs any other command, if it prints verl's metrics. It needs only Python 3.8 and its standard library, because it
is mounted into images that rlt does not build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rlt_pod.report.step_phases import TRAINING

MAX_ENDS = 1000
"""Number of steps since the latest checkpoint whose ends are kept."""


class Devices(NamedTuple):
    """The accelerators of a run."""

    train: int
    """Those that train. Without others, they generate as well."""
    rollout: int = 0
    """Those that only generate."""


@dataclass(frozen=True)
class PhaseSeconds:
    """The seconds since the training began."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase: generate, update, sync, evaluate and idle."""
    ends: tuple[tuple[int, float], ...] = ()
    """Number of a step, and the total at its end, for the steps since the latest checkpoint."""
    saved_step: int = -1
    """Step of the latest complete checkpoint."""
    saved: float = 0.0
    """The total at the end of that step."""

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())


def divide_step(metrics: Mapping[str, float], seconds: float, devices: Devices) -> dict[str, float]:
    """Divide the `seconds` of a step, by its metrics timing_s/PHASE and overlap_s/PHASE. The parts add up to `seconds`.

    Accelerators that only generate are idle during the updates, and the others during the generation.
    """
    sync = min(_read(metrics, "timing_s/update_weights"), seconds)
    evaluate = min(_read(metrics, "timing_s/testing"), seconds - sync)
    update = min(sum(_read(metrics, f"timing_s/{phase}") for phase in TRAINING), seconds - sync - evaluate)
    generate = _read(metrics, "timing_s/gen")
    if devices.rollout:
        share = devices.rollout / (devices.train + devices.rollout)
        update *= 1 - share
        evaluate = min(evaluate + _read(metrics, "overlap_s/testing"), seconds - sync)
        generate = share * min(generate + _read(metrics, "overlap_s/gen"), seconds - sync - evaluate)
        evaluate *= share
    else:
        generate = min(generate, seconds - sync - evaluate - update)
    busy = {"generate": generate, "update": update, "sync": sync, "evaluate": evaluate}
    return {**busy, "idle": max(0.0, seconds - sum(busy.values()))}


def add(spent: PhaseSeconds, phases: Mapping[str, float], step: int | None = None) -> PhaseSeconds:
    """Add the seconds of phases. `step`: the step that has ended with them."""
    seconds = {name: spent.seconds.get(name, 0.0) + phases.get(name, 0.0) for name in {**spent.seconds, **phases}}
    spent = replace(spent, seconds=seconds)
    if step is None:
        return spent
    if step <= spent.saved_step:  # the driver has reported the checkpoint before the end of its step
        return replace(spent, saved=spent.total)
    return replace(spent, ends=(*spent.ends, (step, spent.total))[-MAX_ENDS:])


def save(spent: PhaseSeconds, step: int) -> PhaseSeconds:
    """Record that the checkpoint of a step is complete. Step 0 is the start of the training."""
    totals = [total for end, total in spent.ends if end <= step]
    saved = spent.total if step == 0 else max([spent.saved, *totals])
    return replace(spent, saved_step=step, saved=saved, ends=tuple(each for each in spent.ends if each[0] > step))


def build_phases(spent: PhaseSeconds) -> dict[str, float]:
    """Build the field phases of a ProgressReport."""
    return {**spent.seconds, "uncommitted": max(0.0, spent.total - spent.saved)}


def _read(metrics: Mapping[str, float], name: str) -> float:
    """The value of a metric in seconds; 0 if it is missing, negative or NaN."""
    value = metrics.get(name, 0.0)
    return value if value > 0 else 0.0
