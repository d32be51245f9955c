"""Users, observability and preflight checks."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.metric_rules import list_rules_with_action
from rlt_api.findings.finding import Finding, printable, remove, use
from rlt_api.findings.kinds import above, only_for
from rlt_api.rules.choices import TYPE
from rlt_api.spec.job_spec import RLTrainingJobSpec


def validate_run_as_user(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """runAsUser must not be 0: the pods set runAsNonRoot."""
    if spec.security.run_as_user == 0:
        field = "spec.security.runAsUser"
        fix = "use another user ID, such as 1000"
        yield Finding(field, "0", "is root", fix, rule="root", edits=use(field, 1000))


def validate_profiled_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """profiler.steps must not be above totalSteps."""
    profiler = spec.observability.profiler
    if profiler:
        total = spec.training.total_steps
        yield from _find_late_step("spec.observability.profiler.steps", profiler.steps, total, "profiled-steps")


def validate_recorded_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """recordSteps must not be above totalSteps."""
    recorded = spec.observability.record_steps
    yield from _find_late_step("spec.observability.recordSteps", recorded, spec.training.total_steps, "recorded-steps")


def validate_command_observability(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """profiler, recordSteps and timeline.file are only for framework builtin."""
    observability = spec.observability
    for field, is_given in {
        "spec.observability.profiler": observability.profiler is not None,
        "spec.observability.recordSteps": bool(observability.record_steps),
        "spec.observability.timeline.file": bool(observability.timeline and observability.timeline.file is not None),
    }.items():
        if is_given:
            message = "is only for framework builtin"
            fix = "remove it, and use the options of the command"
            edits = remove(field)
            yield Finding(field, "given", message, fix, rule="framework", involved=(TYPE,), edits=edits)


def validate_pause(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """action: pause needs a checkpoint that outlives the pods: the job resumes from it."""
    if not spec.storage.keeps_checkpoints:
        message = "needs storage that outlives the pods"
        fix = "set storage.claimName, or use warn"
        involved = ("spec.storage.claimName", "spec.storage.storageClassName")
        yield from _reject_pause(spec, message, fix, involved)


def validate_pause_checkpoints(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """action: pause needs a checkpoint, which the builtin trainer saves with checkpoint.saveFreq."""
    if spec.storage.keeps_checkpoints and spec.checkpoint.save_freq < 1:
        fix = "set checkpoint.saveFreq to 1 or more, or use warn"
        yield from _reject_pause(spec, "needs checkpoints", fix, ("spec.checkpoint.saveFreq",))


def _reject_pause(spec: RLTrainingJobSpec, message: str, fix: str, involved: tuple[str, ...]) -> Iterator[Finding]:
    for name in list_rules_with_action(spec.observability.metric_rules, "pause"):
        field = f"spec.observability.metricRules.{name}.action"
        edits = use(field, "warn")
        yield Finding(field, "pause", message, fix, rule="pause", involved=involved, edits=edits)


def validate_preflight_only(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """preflight.only needs checks: without them, the job would have nothing to do."""
    if spec.preflight.only and spec.preflight.level == "none":
        field = "spec.preflight.only"
        level = "spec.preflight.level"
        message = "needs preflight.level basic or full"
        fix = "use level basic, or remove only"
        edits = ({level: "basic"}, {field: None})
        yield Finding(field, "true", message, fix, rule="preflight-only", involved=(level,), edits=edits)


def validate_preflight_command(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """preflight.command is only for framework command: the step of another framework follows from its settings."""
    if spec.preflight.command:
        program = printable(spec.preflight.command[0])
        what = f"framework command, and framework {spec.framework.type} has its own step"
        yield only_for("spec.preflight.command", what, value=program, rule="preflight-command", involved=(TYPE,))


def _find_late_step(path: str, steps: list[int], total: int | None, rule: str) -> Iterator[Finding]:
    """Yield a finding for the last of the steps, if the training ends before it."""
    if steps and total and max(steps) > total:
        field = f"{path}[{steps.index(max(steps))}]"
        yield above(field, max(steps), total, f"totalSteps {total}", rule=rule, involved=("spec.training.totalSteps",))


RULES = (
    validate_run_as_user,
    validate_profiled_steps,
    validate_recorded_steps,
    validate_pause,
    validate_preflight_only,
)
