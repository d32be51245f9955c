"""spec.evaluation: when the suites run, and their data."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.data import DataFilter
from rlt_api.blocks.evaluation import EvaluationData
from rlt_api.findings.finding import Finding, remove
from rlt_api.findings.kinds import effect_only_with, exactly_one, not_used, replaceable, required, show
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import trains

RULE = "evaluation"
DATA_RULE = "evaluation-data"
GATE_RULE = "promote-if"
RESUME = "spec.checkpoint.resume"
SOURCES = ("preset", "files", "hub")


def list_suite_data(spec: RLTrainingJobSpec) -> Iterator[tuple[str, EvaluationData]]:
    """Yield the path and the block of each suite's own data."""
    for index, suite in enumerate(spec.evaluation):
        if suite.data is not None:
            yield f"spec.evaluation[{index}].data", suite.data


def validate_suites(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A suite needs every or beforeTrain, else it never runs, and several responses need a temperature."""
    for index, suite in enumerate(spec.evaluation):
        field = f"spec.evaluation[{index}]"
        if trains(spec) and suite.every is None and not suite.before_train:
            fix = "add it, such as 20, or use beforeTrain: true"
            before = (f"{field}.beforeTrain",)
            yield required(f"{field}.every", "a suite without beforeTrain", fix, 20, rule=RULE, involved=before)
        if suite.responses_per_prompt > 1 and suite.temperature == 0:
            message = "needs a temperature above 0: greedy responses are equal"
            n = suite.responses_per_prompt
            heat = {f"{field}.temperature": 1.0}
            yield replaceable(f"{field}.responsesPerPrompt", n, message, 1, or_set=heat, rule=RULE)


def validate_suite_data(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A suite has exactly one of preset, files and hub. Without data it uses the test split of data.preset."""
    data = spec.data
    for index, suite in enumerate(spec.evaluation):
        field = f"spec.evaluation[{index}]"
        if suite.data is None and data is not None and data.preset is None:
            message = "is required for data without a preset"
            fix = "add it with preset, files or hub, or remove the suite"
            involved = ("spec.data.preset",)
            edits = remove(field)
            yield Finding(f"{field}.data", "none", message, fix, rule=DATA_RULE, involved=involved, edits=edits)
    for field, own in list_suite_data(spec):
        given = [name for name in SOURCES if getattr(own, name) is not None]
        source = (f"{field}.{given[0]}",) if given else ()
        if len(given) != 1:
            yield exactly_one(field, given, of=", ".join(SOURCES), rule=DATA_RULE)
        if own.path is not None and own.preset not in ("gsm8k", "math"):
            by = f"preset {own.preset}" if own.preset else given[0] if given else "any source"
            yield not_used(f"{field}.path", by, value=own.path, rule=DATA_RULE, involved=source)
        if own.files is not None or own.hub is not None:
            continue
        columns: dict[str, str | list[DataFilter] | None] = {
            "promptKey": own.prompt_key,
            "answerKey": own.answer_key,
            "filters": own.filters,
        }
        for name, value in columns.items():
            if value:
                instead = "add files"
                path = f"{field}.{name}"
                yield effect_only_with(path, "files and hub", instead=instead, rule=DATA_RULE, involved=source)


def validate_gates(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """promoteIf needs gainAbove or minimum, and every: it is about the last step. gainAbove also needs beforeTrain, and
    a training that starts with step 1. metric best and maj need several responses."""
    for index, suite in enumerate(spec.evaluation):
        field = f"spec.evaluation[{index}]"
        gate = suite.promote_if
        if gate is None:
            continue
        above = f"{field}.promoteIf.gainAbove"
        if gate.gain_above is None and gate.minimum is None:
            fix = "add it, such as 0 for a better model than before, or use minimum"
            involved = (f"{field}.promoteIf.minimum",)
            yield required(above, "promoteIf without minimum", fix, 0, rule=GATE_RULE, involved=involved)
        if gate.metric != "mean" and suite.responses_per_prompt == 1:
            message = "needs responsesPerPrompt above 1"
            involved = (f"{field}.responsesPerPrompt",)
            yield replaceable(
                f"{field}.promoteIf.metric", gate.metric, message, "mean", rule=GATE_RULE, involved=involved
            )
        if not trains(spec):
            continue
        if suite.every is None:
            fix = "add it, such as 20"
            yield required(f"{field}.every", "promoteIf", fix, 20, rule=GATE_RULE, involved=(f"{field}.promoteIf",))
        if gate.gain_above is not None and not suite.before_train:
            by = "promoteIf.gainAbove, whose base is the evaluation before the training"
            yield required(f"{field}.beforeTrain", by, "use true", True, rule=GATE_RULE, involved=(above,))
        if gate.gain_above is not None and spec.checkpoint.resume in ("path", "job"):
            message = f"has no base: a job with checkpoint.resume {spec.checkpoint.resume} starts after the first step"
            fix = "use minimum instead, or remove promoteIf"
            edits = remove(f"{field}.promoteIf")
            yield Finding(above, show(gate.gain_above), message, fix, rule=GATE_RULE, involved=(RESUME,), edits=edits)


def warn_late_suites(spec: RLTrainingJobSpec) -> Iterator[str]:
    """A suite that runs after the last step alone."""
    total = spec.training.total_steps
    for index, suite in enumerate(spec.evaluation):
        if trains(spec) and total is not None and suite.every is not None and suite.every > total:
            yield (
                f"spec.evaluation[{index}].every: {suite.every}: is above training.totalSteps {total}, and the suite "
                f"runs after the last step alone; use {total} or less"
            )


RULES = (validate_suites, validate_suite_data, validate_gates)
