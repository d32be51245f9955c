"""Users, observability and preflight checks."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.metric_rules import list_rules_with_action
from rlt_api.findings.finding import Finding, printable, remove, use
from rlt_api.rules.choices import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec

CLAIMS, SAVE_FREQ = ("spec.storage.claimName", "spec.storage.storageClassName"), "spec.checkpoint.saveFreq"


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


def validate_pause(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """action: pause needs a checkpoint that outlives the pods: the job resumes from it."""
    storage, checkpoint = spec.storage, spec.checkpoint
    involved: tuple[str, ...]
    if not storage.outlives_pods:
        message, fix, involved = "needs storage that outlives the pods", "set storage.claimName", CLAIMS
    elif spec.framework.type == "builtin" and checkpoint.save_freq < 1:
        message, fix, involved = "needs checkpoints", "set checkpoint.saveFreq to 1 or more", (SAVE_FREQ,)
    else:
        return
    for name in list_rules_with_action(spec.observability.metric_rules, "pause"):
        field = f"spec.observability.metricRules.{name}.action"
        yield Finding(field, "pause", message, f"{fix}, or use warn", "pause", involved, use(field, "warn"))


def validate_preflight_only(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """preflight.only needs checks: without them, the job would have nothing to do."""
    if spec.preflight.only and spec.preflight.level == "none":
        message, fix = "needs preflight.level basic or full", "use level basic, or remove only"
        edits = (*use("spec.preflight.level", "basic"), *remove("spec.preflight.only"))
        yield Finding("spec.preflight.only", "true", message, fix, "preflight-only", ("spec.preflight.level",), edits)


def validate_preflight_command(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """preflight.command is only for framework command: the step of another framework follows from its settings."""
    if spec.preflight.command and spec.framework.type != "command":
        field, given = "spec.preflight.command", printable(spec.preflight.command[0])
        message = f"is only for framework command, and framework {spec.framework.type} has its own step"
        yield Finding(field, given, message, "remove it", "preflight-command", (TYPE,), remove(field))


RULES = (
    validate_run_as_user,
    validate_profiled_steps,
    validate_recorded_steps,
    validate_command_observability,
    validate_pause,
    validate_preflight_only,
    validate_preflight_command,
)
