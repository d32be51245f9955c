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


def recorded_steps_come(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A step after the last one is never recorded."""
    recorded, steps = spec.observability.record_steps, spec.training.total_steps
    if recorded and steps and max(recorded) > steps:
        late = max(recorded)
        message, involved = f"comes after the last step, {steps}", ("spec.training.totalSteps",)
        field = f"spec.observability.recordSteps[{recorded.index(late)}]"
        yield Finding(field, str(late), message, f"use {steps} or less", "recorded-steps", involved)


def a_command_watches_itself(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """What rlt's own trainer writes of itself; a command has its own ways."""
    watched = spec.observability
    given = {
        "profiler": watched.profiler is not None,
        "recordSteps": bool(watched.record_steps),
        "timeline.file": watched.timeline is not None and watched.timeline.file is not None,
    }
    for name, is_given in given.items() if spec.framework.type == "command" else ():
        if is_given:
            message, fix = "is of framework builtin; a command does it by itself", "leave it out"
            yield Finding(f"spec.observability.{name}", "given", message, fix, "framework", (TYPE,))


def a_command_is_not_checked(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The checks are a program of rlt's own trainer, on torch; what a command's image holds nobody knows."""
    if spec.preflight.enabled and spec.framework.type == "command":
        message = "is of framework builtin: the checks are part of its image"
        fix = "leave it out, or say false where the runtime says true"
        yield Finding("spec.preflight.enabled", "true", message, fix, "framework", (TYPE,))


RULES = (nobody_is_root, profiled_steps_come, recorded_steps_come, a_command_watches_itself, a_command_is_not_checked)
