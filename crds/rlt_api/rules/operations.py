"""Users, privileges, and what watches over a job."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.finding import Finding
from rlt_api.rules.choices import TYPE
from rlt_api.spec import RLTrainingJobSpec


def nobody_is_root(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Pods say runAsNonRoot."""
    if spec.security.run_as_user == 0:
        message, fix = "is root", "use another number, such as 1000"
        yield Finding("spec.security.runAsUser", "0", message, fix, "root")


def profiled_steps_come(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A step after the last one is never profiled."""
    profiler, steps = spec.observability.profiler, spec.training.total_steps
    if profiler and steps and max(profiler.steps) > steps:
        late = max(profiler.steps)
        message, involved = f"comes after the last step, {steps}", ("spec.training.totalSteps",)
        field = f"spec.observability.profiler.steps[{profiler.steps.index(late)}]"
        yield Finding(field, str(late), message, f"use {steps} or less", "profiled-steps", involved)


def trackers_have_a_reader(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rlt's own trainer writes neither yet; a command's program does, by its environment."""
    for name in ("wandb", "tensorboard") if spec.framework.type == "builtin" else ():
        if getattr(spec.observability, name):
            message, fix = "not supported yet for framework builtin", "leave it out: metrics.jsonl has its numbers"
            yield Finding(f"spec.observability.{name}", "given", message, fix, "not-supported-yet", (TYPE,))


RULES = (nobody_is_root, profiled_steps_come, trackers_have_a_reader)
