"""Users, observability and preflight checks."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.finding import Finding, remove, use
from rlt_api.rules.choices import TYPE
from rlt_api.spec import RLTrainingJobSpec


def validate_run_as_user(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """runAsUser must not be 0: the pods set runAsNonRoot."""
    if spec.security.run_as_user == 0:
        message, fix = "is root", "use another user ID, such as 1000"
        field = "spec.security.runAsUser"
        yield Finding(field, "0", message, fix, "root", edits=use(field, 1000))


def validate_profiled_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """profiler.steps must not be above totalSteps."""
    profiler, steps = spec.observability.profiler, spec.training.total_steps
    if profiler and steps and max(profiler.steps) > steps:
        late = max(profiler.steps)
        message, involved = f"is above totalSteps {steps}", ("spec.training.totalSteps",)
        field = f"spec.observability.profiler.steps[{profiler.steps.index(late)}]"
        edits = use(field, steps)
        yield Finding(field, str(late), message, f"use {steps} or less", "profiled-steps", involved, edits)


def validate_recorded_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """recordSteps must not be above totalSteps."""
    recorded, steps = spec.observability.record_steps, spec.training.total_steps
    if recorded and steps and max(recorded) > steps:
        late = max(recorded)
        message, involved = f"is above totalSteps {steps}", ("spec.training.totalSteps",)
        field = f"spec.observability.recordSteps[{recorded.index(late)}]"
        edits = use(field, steps)
        yield Finding(field, str(late), message, f"use {steps} or less", "recorded-steps", involved, edits)


def validate_command_observability(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """profiler, recordSteps and timeline.file are only for framework builtin."""
    observability = spec.observability
    given = {
        "profiler": observability.profiler is not None,
        "recordSteps": bool(observability.record_steps),
        "timeline.file": observability.timeline is not None and observability.timeline.file is not None,
    }
    for name, is_given in given.items() if spec.framework.type == "command" else ():
        if is_given:
            message, fix = "is only for framework builtin", "remove it, and use the options of the command"
            field = f"spec.observability.{name}"
            yield Finding(field, "given", message, fix, "framework", (TYPE,), remove(field))


def validate_preflight_only(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """preflight.only needs checks: without them, the job would have nothing to do."""
    if spec.preflight.only and spec.preflight.level == "off":
        message, fix = "needs preflight.level basic or full", "use level basic, or remove only"
        edits = (*use("spec.preflight.level", "basic"), *remove("spec.preflight.only"))
        yield Finding("spec.preflight.only", "true", message, fix, "preflight-only", ("spec.preflight.level",), edits)


RULES = (
    validate_run_as_user,
    validate_profiled_steps,
    validate_recorded_steps,
    validate_command_observability,
    validate_preflight_only,
)
