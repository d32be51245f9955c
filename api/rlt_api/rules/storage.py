"""Volumes, mount paths and checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import lcm
from typing import Any

from rlt_api.findings.finding import Finding, remove, use
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_DIRECTORY

RESERVED_FOLDERS = (CONFIG_DIRECTORY, "/dev", "/proc", "/sys")
"""Folders that a pod uses otherwise."""
IMAGE_FOLDERS = (
    *("/bin", "/etc", "/home", "/lib", "/lib64", "/opt", "/root", "/run", "/sbin", "/tmp", "/usr", "/usr/bin"),
    *("/usr/lib", "/usr/local", "/var"),
)
"""Folders with programs of images (/opt/venv, /home/ray of Ray's images) or with Ray's sockets (/tmp/ray)."""
STEP_FOLDERS = {"verl": "global_step_", "roll": "checkpoint-"}
"""Framework -> start of a checkpoint folder's name, if it is not step- (rlt_trainer/checkpoint/marker.py)."""
CLAIM, CLASS, SIZE = (f"spec.storage.{name}" for name in ("claimName", "storageClassName", "size"))


def validate_storage_claim(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Storage must have either claimName, or storageClassName with size."""
    storage, rule = spec.storage, "storage-claim"
    if storage.claim_name and storage.storage_class_name:
        message, fix = "cannot be combined with claimName", "remove claimName, or storageClassName and size"
        edits = ({CLAIM: None}, {CLASS: None, SIZE: None})
        yield Finding(CLASS, storage.storage_class_name, message, fix, rule, (CLAIM,), edits)
    if storage.storage_class_name and storage.size is None:
        message, fix = "is required by storageClassName", "add it, such as 100Gi"
        yield Finding(SIZE, "none", message, fix, rule, (CLASS,), use(SIZE, "100Gi"))
    if storage.size and storage.storage_class_name is None:
        message, fix = "has an effect only with storageClassName", "remove it, or add storageClassName"
        yield Finding(SIZE, storage.size, message, fix, rule, (CLASS,), remove(SIZE))


def validate_checkpoint_volume(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Checkpoints of several worker pods need a shared volume: each pod writes a part, and a resume reads all parts."""
    storage, checkpoint = spec.storage, spec.checkpoint
    if storage.outlives_pods:
        return
    if checkpoint.save_freq > 0 and spec.cluster.workers[0].replicas > 1:
        message = f"is required by checkpoint.saveFreq {checkpoint.save_freq}: all pods need a shared volume"
        fix = "add storage.claimName" if checkpoint.keep_best else "add storage.claimName, or use saveFreq: -1"
        involved = ("spec.checkpoint.saveFreq", "spec.cluster.workers[0].replicas", CLASS)
        edits = () if checkpoint.keep_best else use("spec.checkpoint.saveFreq", -1)
        yield Finding(CLAIM, "none", message, fix, "checkpoint-volume", involved, edits)


def validate_mount_paths(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Mount paths must not overlap with each other or with reserved folders: a mount hides the files below it."""
    storage, cache = spec.storage, spec.storage.model_cache
    mounts: list[tuple[str, str]] = [("spec.storage.mountPath", storage.mount_path)]
    if cache:
        mounts.append(("spec.storage.modelCache.mountPath", cache.mount_path))
    for field, path in mounts:
        for reserved in RESERVED_FOLDERS:
            if _is_within(path, reserved) or _is_within(reserved, path):
                yield Finding(field, path, f"hides {reserved}", "use another path, such as below /mnt", "mount-path")
                break
        else:
            if path.rstrip("/") in IMAGE_FOLDERS:
                message = "hides the files of the image in this folder"
                yield Finding(field, path, message, "use another path, such as below /mnt", "mount-path")
    home = storage.hf_home or ""
    if within := [reserved for reserved in RESERVED_FOLDERS if _is_within(home, reserved)]:
        message = f"is in {within[0]}, which is not writable"
        field = "spec.storage.hfHome"
        yield Finding(field, home, message, "remove it, or use another path", "mount-path", edits=remove(field))
    if cache and (_is_within(cache.mount_path, storage.mount_path) or _is_within(storage.mount_path, cache.mount_path)):
        yield Finding(
            "spec.storage.modelCache.mountPath",
            cache.mount_path,
            f"overlaps with storage.mountPath {storage.mount_path}",
            "use separate paths, such as /mnt/models and /mnt/rlt",
            "mount-path",
            ("spec.storage.mountPath",),
        )


def validate_resume(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resume path needs resumeFromPath, the folder of a checkpoint: step-N, of verl global_step_N, of ROLL
    checkpoint-N. No other mode uses it."""
    checkpoint, field = spec.checkpoint, "spec.checkpoint.resumeFromPath"
    path, involved = checkpoint.resume_from_path, ("spec.checkpoint.resume",)
    start = STEP_FOLDERS.get(spec.framework.type, "step-")
    if checkpoint.resume == "path" and path is not None and not re.fullmatch(rf".*/{start}[0-9]+/?", path):
        message = f"is not the folder of a checkpoint, whose name is {start}N"
        fix = f"add the step, such as checkpoints/{start}100 in the run directory"
        yield Finding(field, path, message, fix, "resume", involved)
    if checkpoint.resume == "path" and path is None:
        yield Finding(field, "none", "is required by resume path", "add the folder of a checkpoint", "resume", involved)
    if path is not None and checkpoint.resume != "path":
        message, fix = f"is not used by resume {checkpoint.resume}", "remove it, or use resume: path"
        edits = (*remove(field), *use(involved[0], "path"))
        yield Finding(field, path, message, fix, "resume", involved, edits)


def validate_resume_from_job(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """resume job needs resumeFromJob, and storage.claimName, the volume with the checkpoints of that job. No other mode
    uses resumeFromJob."""
    checkpoint, field, mode = spec.checkpoint, "spec.checkpoint.resumeFromJob", "spec.checkpoint.resume"
    name, rule = checkpoint.resume_from_job, "resume-from-job"
    if name is not None and checkpoint.resume != "job":
        message, fix = f"is not used by resume {checkpoint.resume}", "remove it, or use resume: job"
        edits = (*remove(field), *use(mode, "job"))
        yield Finding(field, name, message, fix, rule, (mode,), edits)
    if checkpoint.resume == "job" and name is None:
        yield Finding(field, "none", "is required by resume job", "add the name of a job", rule, (mode,))
    if checkpoint.resume == "job" and spec.storage.claim_name is None:
        message, fix = "is required by resume job", "use the PVC with the checkpoints of that job"
        yield Finding(CLAIM, "none", message, fix, rule, (mode,))


def validate_resume_from_other_job(name: str, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Validate that resumeFromJob is not the name of the job itself."""
    if spec.checkpoint.resume_from_job == name:
        field, mode = "spec.checkpoint.resumeFromJob", "spec.checkpoint.resume"
        message, fix = "is the name of this job", "remove it and use resume: auto, or use the name of another job"
        edits = ({field: None, mode: "auto"},)
        yield Finding(field, name, message, fix, "resume-from-job", ("metadata.name", mode), edits)


def validate_keep_best(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """keepBest needs training.validation.testFreq: it keeps the checkpoint with the highest validation score."""
    validation = spec.training.validation
    if spec.checkpoint.keep_best and (validation is None or validation.test_freq < 1):
        message, fix = "needs validation scores", "set training.validation.testFreq, or remove it"
        involved = ("spec.training.validation.testFreq",)
        field = "spec.checkpoint.keepBest"
        yield Finding(field, "true", message, fix, "keep-best", involved, remove(field))


def validate_keep_best_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With keepBest, a step before the last must be both saved and validated: only such a checkpoint has a score."""
    validation, save_freq, field = spec.training.validation, spec.checkpoint.save_freq, "spec.checkpoint.saveFreq"
    if not spec.checkpoint.keep_best or validation is None or validation.test_freq < 1:
        return
    test_freq, total = validation.test_freq, spec.training.total_steps
    keep_best = "spec.checkpoint.keepBest"
    if save_freq < 1:
        fix = f"use {test_freq}, or remove keepBest"
        edits = (*use(field, test_freq), *remove(keep_best))
        yield Finding(field, str(save_freq), "must be 1 or more with keepBest", fix, "keep-best", (keep_best,), edits)
        return
    common = lcm(save_freq, test_freq)
    if total is not None and max(save_freq, test_freq) < common and common >= total:
        message = f"has no step before the last ({total}) in common with testFreq {test_freq}, as keepBest needs"
        nearest = max(1, round(save_freq / test_freq)) * test_freq
        involved = ("spec.training.validation.testFreq", keep_best, "spec.training.totalSteps")
        fix, edits = f"use {nearest}, a multiple of testFreq", use(field, nearest)
        yield Finding(field, str(save_freq), message, fix, "keep-best", involved, edits)


def _is_within(path: str, folder: str) -> bool:
    path, folder = path.rstrip("/"), folder.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")


RULES = (
    validate_storage_claim,
    validate_checkpoint_volume,
    validate_mount_paths,
    validate_resume,
    validate_resume_from_job,
    validate_keep_best,
    validate_keep_best_steps,
)


def describe_missing_volume(path: str, spec: RLTrainingJobSpec) -> str | None:
    """Return the problem of an absolute path in the pods that is on no volume of the job; None if it is on one."""
    mounts = [spec.storage.mount_path, *([spec.storage.model_cache.mount_path] if spec.storage.model_cache else [])]
    for template in (spec.cluster.head.pod_template, *(group.pod_template for group in spec.cluster.workers)):
        mounts += _list_mounts(template)
    if any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in mounts):
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
    return [str(each["mountPath"]) for each in mounts if isinstance(each, Mapping) and each.get("mountPath")]
