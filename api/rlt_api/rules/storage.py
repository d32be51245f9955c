"""Volumes, mount paths and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import lcm
from typing import Any

from rlt_api.findings.finding import Edit, Finding, remove, use
from rlt_api.findings.kinds import effect_only_with, not_used, replaceable, required, superfluous
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY

RESERVED_FOLDERS = (CONFIG_DIRECTORY, "/dev", "/proc", "/sys")
"""Folders that a pod uses otherwise."""
IMAGE_FOLDERS = (
    *("/bin", "/etc", "/home", "/lib", "/lib64", "/opt", "/root", "/run", "/sbin", "/tmp", "/usr", "/usr/bin"),
    *("/usr/lib", "/usr/local", "/var"),
)
"""Folders with programs of images (/opt/venv, /home/ray of Ray's images) or with Ray's sockets (/tmp/ray)."""
"""Framework -> start of a checkpoint folder's name, if it is not step- (rlt_trainer/checkpoint/marker.py)."""
CLAIM = "spec.storage.claimName"
CLASS = "spec.storage.storageClassName"
SIZE = "spec.storage.size"
MOUNT = "spec.storage.mountPath"
SAVE_FREQ = "spec.checkpoint.saveFreq"
KEEP_BEST = "spec.checkpoint.keepBest"
RESUME = "spec.checkpoint.resume"
RESUME_FROM_JOB = "spec.checkpoint.resumeFromJob"
EVERY = "spec.evaluation[0].every"


def validate_storage_claim(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Storage must have either claimName, or storageClassName with size."""
    storage = spec.storage
    rule = "storage-claim"
    if storage.claim_name and storage.storage_class_name:
        message = "cannot be combined with claimName"
        fix = "remove claimName, or storageClassName and size"
        edits: tuple[Edit, ...] = ({CLAIM: None}, {CLASS: None, SIZE: None})
        yield Finding(CLASS, storage.storage_class_name, message, fix, rule=rule, involved=(CLAIM,), edits=edits)
    if storage.storage_class_name and storage.size is None:
        yield required(SIZE, "storageClassName", "add it, such as 100Gi", "100Gi", rule=rule, involved=(CLASS,))
    if storage.size and storage.storage_class_name is None:
        instead = "add storageClassName"
        involved = (CLASS,)
        size = storage.size
        yield effect_only_with(SIZE, "storageClassName", value=size, instead=instead, rule=rule, involved=involved)


def validate_checkpoint_volume(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Checkpoints of several worker pods need a shared volume: each pod writes a part, and a resume reads all parts."""
    save_freq = spec.checkpoint.save_freq
    if spec.storage.keeps_checkpoints:
        return
    if save_freq > 0 and spec.cluster.workers[0].replicas > 1:
        message = f"is required by checkpoint.saveFreq {save_freq}: all pods need a shared volume"
        fix = "add storage.claimName"
        edits: tuple[Edit, ...] = ()
        if not spec.checkpoint.keep_best:
            fix = "add storage.claimName, or use saveFreq: -1"
            edits = use(SAVE_FREQ, -1)
        involved = (SAVE_FREQ, "spec.cluster.workers[0].replicas", CLASS)
        yield Finding(CLAIM, "none", message, fix, rule="checkpoint-volume", involved=involved, edits=edits)


def validate_mount_paths(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Mount paths must not overlap with each other or with reserved folders: a mount hides the files below it."""
    storage = spec.storage
    cache = storage.model_cache
    rule = "mount-path"
    cache_field = "spec.storage.modelCache.mountPath"
    mounts = {MOUNT: storage.mount_path, **({cache_field: cache.mount_path} if cache else {})}
    for field, path in mounts.items():
        hidden = next((folder for folder in RESERVED_FOLDERS if _overlap(path, folder)), None)
        if path.rstrip("/") in IMAGE_FOLDERS:
            hidden = hidden or "the files of the image in this folder"
        if hidden:
            yield Finding(field, path, f"hides {hidden}", "use another path, such as below /mnt", rule=rule)
    home = storage.hf_home or ""
    if within := [folder for folder in RESERVED_FOLDERS if _is_within(home, folder)]:
        message = f"is in {within[0]}, which is not writable"
        yield superfluous("spec.storage.hfHome", home, message, instead="use another path", rule=rule)
    if cache and _overlap(cache.mount_path, storage.mount_path):
        message = f"overlaps with storage.mountPath {storage.mount_path}"
        fix = "use separate paths, such as /mnt/models and /mnt/rlt"
        yield Finding(cache_field, cache.mount_path, message, fix, rule=rule, involved=(MOUNT,))


def validate_resume_from_job(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resume job needs resumeFromJob, and storage.claimName, the volume with the checkpoints of that job. No other mode
    uses resumeFromJob."""
    resume = spec.checkpoint.resume
    name = spec.checkpoint.resume_from_job
    rule = "resume-from-job"
    if name is not None and resume != "job":
        yield not_used(RESUME_FROM_JOB, f"resume {resume}", value=name, or_set={RESUME: "job"}, rule=rule)
    if resume == "job" and name is None:
        yield required(RESUME_FROM_JOB, "resume job", "add the name of a job", rule=rule, involved=(RESUME,))
    if resume == "job" and spec.storage.claim_name is None and spec.storage.bucket is None:
        fix = "use the PVC with the checkpoints of that job"
        yield required(CLAIM, "resume job", fix, rule=rule, involved=(RESUME,))


def validate_resume_from_other_job(name: str, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Validate that resumeFromJob is not the name of the job itself."""
    if spec.checkpoint.resume_from_job == name:
        fix = "remove it and use resume: auto, or use the name of another job"
        involved = ("metadata.name", RESUME)
        edits: tuple[Edit, ...] = ({RESUME_FROM_JOB: None, RESUME: "auto"},)
        message = "is the name of this job"
        yield Finding(RESUME_FROM_JOB, name, message, fix, rule="resume-from-job", involved=involved, edits=edits)


def validate_keep_best(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """keepBest needs every in the first suite of spec.evaluation: it keeps the checkpoint with the highest score."""
    if spec.checkpoint.keep_best and (not spec.evaluation or spec.evaluation[0].every is None):
        message = "needs scores of an evaluation"
        fix = "set every in the first suite of spec.evaluation, or remove it"
        edits = remove(KEEP_BEST)
        involved = (EVERY if spec.evaluation else "spec.evaluation",)
        yield Finding(KEEP_BEST, "true", message, fix, rule="keep-best", involved=involved, edits=edits)


def validate_keep_best_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With keepBest, a step before the last must be both saved and evaluated: only such a checkpoint has a score."""
    every = spec.evaluation[0].every if spec.evaluation else None
    if not spec.checkpoint.keep_best or every is None:
        return
    save_freq = spec.checkpoint.save_freq
    total = spec.training.total_steps
    rule = "keep-best"
    if save_freq < 1:
        message = "must be 1 or more with keepBest"
        yield replaceable(SAVE_FREQ, save_freq, message, every, or_set={KEEP_BEST: None}, rule=rule)
        return
    common = lcm(save_freq, every)
    if total is not None and max(save_freq, every) < common and common >= total:
        message = f"has no step before the last ({total}) in common with {EVERY} {every}, as keepBest needs"
        nearest = max(1, round(save_freq / every)) * every
        fix = f"use {nearest}, a multiple of every"
        involved = (EVERY, KEEP_BEST, "spec.training.totalSteps")
        edits = use(SAVE_FREQ, nearest)
        yield Finding(SAVE_FREQ, str(save_freq), message, fix, rule=rule, involved=involved, edits=edits)


def _is_within(path: str, folder: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _overlap(one: str, other: str) -> bool:
    return _is_within(one, other) or _is_within(other, one)


RULES = (
    validate_storage_claim,
    validate_checkpoint_volume,
    validate_mount_paths,
    validate_resume_from_job,
    validate_keep_best,
    validate_keep_best_steps,
)


def describe_missing_volume(path: str, spec: RLTrainingJobSpec) -> str | None:
    """Return the problem of an absolute path in the pods that is on no volume of the job; None if it is on one."""
    mounts = [spec.storage.mount_path, *([spec.storage.model_cache.mount_path] if spec.storage.model_cache else [])]
    for template in (spec.cluster.head.pod_template, *(group.pod_template for group in spec.cluster.workers)):
        mounts += _list_mounts(template)
    if any(f"{path}/".startswith(f"{mount.rstrip('/')}/") for mount in mounts):
        return None
    return f"is on no volume of the job ({', '.join(dict.fromkeys(mounts))}); it must be in the image"


def _list_mounts(template: Mapping[str, Any]) -> list[str]:
    """The mount paths in a podTemplate. Malformed ones are ignored."""
    pod = template.get("spec")
    containers = pod.get("containers") if isinstance(pod, Mapping) else None
    mounts = [
        mount
        for container in (containers if isinstance(containers, list) else [])
        if isinstance(container, Mapping) and isinstance(container.get("volumeMounts"), list)
        for mount in container["volumeMounts"]
    ]
    return [str(mount["mountPath"]) for mount in mounts if isinstance(mount, Mapping) and mount.get("mountPath")]
