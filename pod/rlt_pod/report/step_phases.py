"""The phases of a step by what they use, and where its idle time is. Pure.

It needs only Python 3.8 and its standard library, because it is mounted into images that rlt does not build.
"""

from __future__ import annotations

from collections.abc import Mapping

GENERATION = ("gen",)
TRAINING = ("old_log_prob", "ref", "teacher", "values", "update_critic", "update_actor")
"""Phases of a step, as in timing_s/PHASE."""
SHARED = ("update_weights", "testing")
"""Phases that use accelerators that train, that generate, or both."""
HEAD_CPUS = "raise spec.cluster.head.resources.cpu"
FIELDS = {
    "reward": "raise spec.rewards[].concurrency",
    "save_checkpoint": "raise spec.checkpoint.saveFreq",
    "adv": HEAD_CPUS,
    "record": "list fewer steps in spec.observability.recordSteps",
    "unaccounted": HEAD_CPUS,
}
"""Phase in which all accelerators are idle -> the field to change."""
GAP = "the time between two steps"
"""The driver writes metrics, files and rollouts."""


def describe_idle(metrics: Mapping[str, float]) -> str:
    """Where the idle time of a step is, with the arithmetic and the field to change. Empty without the times."""
    step = metrics.get("timing_s/step", 0.0)
    share = metrics.get("perf/idle_share", 0.0)
    if not (step > 0 and 0 < share < 1):
        return ""
    return _describe_groups(metrics, step) if "perf/rollout_pods" in metrics else _describe_phases(metrics, step, share)


def _describe_groups(metrics: Mapping[str, float], step: float) -> str:
    """How long each group waits: those that only generate, and the others."""
    waited = metrics.get("timing_s/gen", 0.0)
    beside = metrics.get("overlap_s/gen", 0.0)
    both = metrics.get("timing_s/update_weights", 0.0)
    training = _add(metrics, TRAINING)
    trainer = max(0.0, step - both - training)
    evaluated = metrics.get("timing_s/testing", 0.0) + metrics.get("overlap_s/testing", 0.0)
    rollout = max(0.0, step - both - evaluated - waited - beside)
    if not beside:
        field = "set spec.rollout.staleness, so that both work at the same time"
    elif trainer > rollout:
        field = "move replicas to the group that generates (spec.cluster.workers[].replicas, spec.rolloutReplicas)"
    else:
        field = "move replicas to the group that trains (spec.cluster.workers[].replicas, spec.rolloutReplicas)"
    return (
        f". Of the step's {step:.4g} s, the accelerators that train were idle for {trainer:.4g} s, {waited:.4g} s of "
        f"them in gen, and those that only generate for {rollout:.4g} s, {training:.4g} s of them in updates and "
        f"log-probabilities: {field}"
    )


def _describe_phases(metrics: Mapping[str, float], step: float, share: float) -> str:
    """The phase with the largest part of the idle time, which the busy phases and their share determine."""
    busy = _add(metrics, (*GENERATION, *TRAINING, *SHARED))
    wall = busy / (1 - share)
    idle = wall - busy
    if not idle > 0:
        return ""
    parts = {name: metrics.get(f"timing_s/{name}", 0.0) for name in FIELDS}
    parts[GAP] = wall - step
    largest = max(parts, key=lambda name: parts[name])
    part = min(1.0, parts[largest] / idle)
    return (
        f". {busy:.4g} s of {wall:.4g} s used the accelerators. Of the other {idle:.4g} s, {largest} took "
        f"{parts[largest]:.4g} s ({part:.0%}): {FIELDS.get(largest, HEAD_CPUS)}"
    )


def _add(metrics: Mapping[str, float], phases: tuple[str, ...]) -> float:
    return sum(metrics.get(f"timing_s/{phase}", 0.0) for phase in phases)
