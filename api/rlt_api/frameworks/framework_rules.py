"""The rules that read the record of the job's framework: its options, its fields, and its checkpoint folders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.findings.kinds import not_used, replaceable, required
from rlt_api.frameworks.registry import FRAMEWORKS, get_framework
from rlt_api.rules.choices import TYPE
from rlt_api.rules.locations import NO_URL, URL_FIX
from rlt_api.rules.storage import RESUME
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import SCHEME, is_object_url
from rlt_api.spec.runtime import TRAINING_BLOCKS
from rlt_api.spec.worker_groups import trains

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
    if trains(spec) and spec.training.total_steps is None and spec.training.total_epochs is None:
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
    checkpoint-N. No other mode uses it. A checkpoint in a bucket is for framework builtin."""
    field = "spec.checkpoint.resumeFromPath"
    resume = spec.checkpoint.resume
    path = spec.checkpoint.resume_from_path
    start = get_framework(spec).step_folder
    if resume == "path" and path is not None and not re.fullmatch(rf".*/{start}[0-9]+/?", path):
        message = f"is not the folder of a checkpoint, whose name is {start}N"
        fix = f"add the step, such as checkpoints/{start}100 in the run directory"
        yield Finding(field, path, message, fix, rule="resume", involved=(RESUME,))
    elif path is not None and path.startswith(SCHEME):
        if spec.framework.type != "builtin":
            message = f"is in a bucket, from which type {spec.framework.type} does not resume"
            fix = "download it to a volume in framework.prepare, and use its path"
            yield Finding(field, path, message, fix, rule="resume", involved=(TYPE,))
        elif not is_object_url(path):
            yield Finding(field, path, NO_URL, URL_FIX, rule="resume")
        elif spec.training.warmup is not None:
            message = "is downloaded without step-0 of its run, the reference of the KL term with training.warmup"
            fix = "copy both to a volume, and use the path of this one"
            yield Finding(field, path, message, fix, rule="resume", involved=("spec.training.warmup",))
    if resume == "path" and path is None:
        yield required(field, "resume path", "add the folder of a checkpoint", rule="resume", involved=(RESUME,))
    if path is not None and resume != "path":
        yield not_used(field, f"resume {resume}", value=path, or_set={RESUME: "path"}, rule="resume")


def validate_restart_policy(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """restartPolicy InPlace needs a program that holds the lease of its run directory, and storage that all pods
    share, so that they see the same lease."""
    field = "spec.failurePolicy.restartPolicy"
    framework = get_framework(spec)
    if spec.failure_policy.restart_policy != "InPlace":
        return
    if not framework.takes_lease:
        title = framework.title
        message = f"is not safe with {title}: its program does not stop when a later attempt has its run directory"
        yield replaceable(field, "InPlace", message, "Recreate", rule="in-place", involved=(TYPE,))
    elif not spec.storage.outlives_pods:
        fix = "set storage.claimName, or use Recreate"
        edits = use(field, "Recreate")
        involved = ("spec.storage.claimName", "spec.storage.storageClassName")
        message = "needs storage that all pods share"
        yield Finding(field, "InPlace", message, fix, rule="in-place", involved=involved, edits=edits)


RULES = (validate_framework, validate_resume, validate_restart_policy)
