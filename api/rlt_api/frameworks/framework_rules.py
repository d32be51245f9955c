"""The rules that read the record of the job's framework: its options, its fields, and its checkpoint folders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import not_used, required
from rlt_api.frameworks.registry import FRAMEWORKS, get_framework
from rlt_api.rules.choices import TYPE
from rlt_api.rules.storage import RESUME
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import TRAINING_BLOCKS

RULE = "framework"


def validate_framework(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Type command needs framework.command; the others need model, data and the number of steps or epochs. Fields of
    another type are not allowed."""
    framework = spec.framework
    for field in framework.model_dump(exclude_defaults=True, by_alias=True):
        if unused := report_unused_option(field, framework.type):
            yield unused
    if not get_framework(spec).reads_fields:
        if not framework.command:
            value = "none" if framework.command is None else "[]"
            fix = "add the program and its arguments"
            message = "is required by type command"
            yield Finding("spec.framework.command", value, message, fix, rule=RULE, involved=(TYPE,))
        for block in TRAINING_BLOCKS:
            if block in spec.model_fields_set:
                yield not_used(f"spec.{block}", by="type command", rule=RULE, involved=(TYPE,))
        return
    by = f"framework {framework.type}"
    for block in ("model", "data"):
        if getattr(spec, block) is None:
            yield required(f"spec.{block}", by, f"add spec.{block}", rule=RULE)
    if spec.training.total_steps is None and spec.training.total_epochs is None:
        fix = "add the number of steps, or totalEpochs"
        yield required("spec.training.totalSteps", by, fix, rule=RULE, involved=("spec.training.totalEpochs",))


def report_unused_option(field: str, framework: str) -> Finding | None:
    """Build the finding for a field of spec.framework that this type does not use; None if the type uses it."""
    types = [each.name for each in FRAMEWORKS.values() if field in each.options]
    if not types or framework in types:
        return None
    return not_used(f"spec.framework.{field}", by=f"type {framework}", instead=f"use type: {types[0]}", rule=RULE)


def validate_resume(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resume path needs resumeFromPath, the folder of a checkpoint: step-N, of verl global_step_N, of ROLL
    checkpoint-N. No other mode uses it."""
    field = "spec.checkpoint.resumeFromPath"
    resume = spec.checkpoint.resume
    path = spec.checkpoint.resume_from_path
    start = get_framework(spec).step_folder
    if resume == "path" and path is not None and not re.fullmatch(rf".*/{start}[0-9]+/?", path):
        message = f"is not the folder of a checkpoint, whose name is {start}N"
        fix = f"add the step, such as checkpoints/{start}100 in the run directory"
        yield Finding(field, path, message, fix, rule="resume", involved=(RESUME,))
    if resume == "path" and path is None:
        yield required(field, "resume path", "add the folder of a checkpoint", rule="resume", involved=(RESUME,))
    if path is not None and resume != "path":
        yield not_used(field, f"resume {resume}", value=path, or_set={RESUME: "path"}, rule="resume")


RULES = (validate_framework, validate_resume)
