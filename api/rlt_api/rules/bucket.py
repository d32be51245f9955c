"""Checkpoints and results in a bucket instead of a shared volume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from rlt_api.findings.finding import Edit, Finding
from rlt_api.findings.kinds import effect_only_with, not_used
from rlt_api.rules.choices import TYPE
from rlt_api.rules.storage import CLAIM, CLASS, MOUNT, RESUME, RESUME_FROM_JOB, SIZE
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.objects import list_objects

BUCKET = "spec.storage.bucket"
RULE = "bucket"
RESUME_FROM_PATH = "spec.checkpoint.resumeFromPath"
WITHOUT: Edit = {BUCKET: None, "spec.storage.endpoint": None, "spec.storage.secretName": None}


def validate_bucket(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A bucket replaces storage.claimName and storage.storageClassName. endpoint and secretName are for it, and for
    models and data with paths such as s3://bucket/prefix. Only framework builtin writes to a bucket."""
    storage = spec.storage
    if storage.bucket is None:
        if list_objects(spec):
            return
        for name, value in (("endpoint", storage.endpoint), ("secretName", storage.secret_name)):
            if value is not None:
                field = f"spec.storage.{name}"
                other = "bucket or a path that begins with s3://"
                yield effect_only_with(field, other, value=value, instead="add bucket", rule=RULE, involved=(BUCKET,))
        return
    volumes: dict[str, tuple[str | None, Edit]] = {
        CLAIM: (storage.claim_name, {CLAIM: None}),
        CLASS: (storage.storage_class_name, {CLASS: None, SIZE: None}),
    }
    for field, (value, edit) in volumes.items():
        if value is not None:
            message = f"cannot be combined with {field.removeprefix('spec.storage.')}"
            fix = "remove one of them"
            edits = (WITHOUT, edit)
            yield Finding(BUCKET, storage.bucket, message, fix, rule=RULE, involved=(field,), edits=edits)
    if spec.framework.type != "builtin":
        message = f"is not used by type {spec.framework.type}"
        fix = "remove it, and use claimName"
        yield Finding(BUCKET, storage.bucket, message, fix, rule=RULE, involved=(TYPE,), edits=(WITHOUT,))


def validate_folders_with_bucket(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With a bucket, each pod has its own run directory: recordings and profiles, which several pods write, and
    the checkpoints of another job or below storage.mountPath need a shared volume."""
    if spec.storage.bucket is None:
        return
    observability = spec.observability
    for field, is_given in {
        "spec.observability.recordSteps": bool(observability.record_steps),
        "spec.observability.profiler": observability.profiler is not None,
    }.items():
        if is_given:
            yield not_used(field, by="storage.bucket", instead="use storage.claimName", rule=RULE, involved=(BUCKET,))
    path = spec.checkpoint.resume_from_path
    mount = spec.storage.mount_path
    if path is not None and PurePosixPath(path).is_relative_to(mount):
        message = f"is below storage.mountPath {mount}, which is a folder of each pod with storage.bucket"
        fix = "use a checkpoint in the bucket (s3://BUCKET/PREFIX/step-N), or a folder of storage.modelCache"
        yield Finding(RESUME_FROM_PATH, path, message, fix, rule=RULE, involved=(BUCKET, MOUNT))
    if spec.checkpoint.resume == "job":
        message = "needs storage.claimName, with which storage.bucket cannot be combined"
        edits = {RESUME: "auto", RESUME_FROM_JOB: None}
        yield Finding(
            RESUME,
            "job",
            message,
            "use auto, and remove resumeFromJob",
            rule=RULE,
            involved=(BUCKET, RESUME_FROM_JOB),
            edits=(edits,),
        )


RULES = (validate_bucket, validate_folders_with_bucket)
