"""Volumes, the paths they are mounted at, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from rlt_api.finding import Finding
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import CONFIG_DIRECTORY

TAKEN = (CONFIG_DIRECTORY, "/dev", "/proc", "/sys")
"""Folders that a pod has for other things."""
CLAIM, CLASS, SIZE = (f"spec.storage.{name}" for name in ("claimName", "storageClassName", "size"))


def claim_is_taken_or_made(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """An existing claim, or class and size of a new one."""
    storage, rule = spec.storage, "storage-claim"
    if storage.claim_name and storage.storage_class_name:
        message, fix = "goes not with claimName, a claim that exists", "leave one of them out"
        yield Finding(CLASS, storage.storage_class_name, message, fix, rule, (CLAIM,))
    if storage.storage_class_name and storage.size is None:
        yield Finding(SIZE, "none", "storageClassName needs it", "give it, such as 100Gi", rule, (CLASS,))
    if storage.size and storage.storage_class_name is None:
        message = "is the size of a claim that is made"
        yield Finding(SIZE, storage.size, message, "leave it out, or give storageClassName", rule, (CLASS,))


def checkpoints_are_shared(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Each rank writes its part of a checkpoint, and reads others' after a resume."""
    storage, checkpoint = spec.storage, spec.checkpoint
    if storage.claim_name or storage.storage_class_name:
        return
    if checkpoint.save_freq > 0 and spec.cluster.workers[0].replicas > 1:
        message = f"checkpoint.saveFreq {checkpoint.save_freq} needs a volume that all pods share"
        involved = ("spec.checkpoint.saveFreq", "spec.cluster.workers[0].replicas", CLASS)
        yield Finding(CLAIM, "none", message, "give storage.claimName, or saveFreq: -1", "checkpoint-volume", involved)


def mounts_are_apart(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A mount hides what lies under it."""
    storage, cache = spec.storage, spec.storage.model_cache
    places: list[tuple[str, str]] = [("spec.storage.mountPath", storage.mount_path)]
    if cache:
        places.append(("spec.storage.modelCache.mountPath", cache.mount_path))
    for field, path in places:
        for taken in TAKEN:
            if _within(path, taken) or _within(taken, path):
                yield Finding(field, path, f"hides {taken}", "mount it elsewhere, such as below /mnt", "mount-path")
                break
    home = storage.hf_home or ""
    if within := [taken for taken in TAKEN if _within(home, taken)]:
        message = f"is in {within[0]}, which nobody can write"
        yield Finding("spec.storage.hfHome", home, message, "leave it out, or put it elsewhere", "mount-path")
    if cache and (_within(cache.mount_path, storage.mount_path) or _within(storage.mount_path, cache.mount_path)):
        yield Finding(
            "spec.storage.modelCache.mountPath",
            cache.mount_path,
            f"and storage.mountPath {storage.mount_path} hide each other",
            "mount them in different folders, such as /mnt/models and /mnt/rlt",
            "mount-path",
            ("spec.storage.mountPath",),
        )


def resumed_path_is_given(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """verl: resume ckpt must specify the global_steps."""
    checkpoint, field = spec.checkpoint, "spec.checkpoint.resumeFromPath"
    path, involved = checkpoint.resume_from_path, ("spec.checkpoint.resume",)
    if checkpoint.resume == "path" and path is None:
        yield Finding(field, "none", "resume path needs it", "give the folder of a checkpoint", "resume", involved)
    if path is not None and checkpoint.resume != "path":
        message, fix = f"resume {checkpoint.resume} does not read it", "leave it out, or give resume: path"
        yield Finding(field, path, message, fix, "resume", involved)


def best_is_measured(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The best checkpoint is the one with the highest validation score."""
    validation = spec.training.validation
    if spec.checkpoint.keep_best and (validation is None or validation.test_freq < 1):
        message, fix = "needs validation scores", "give training.validation.testFreq, or leave it out"
        involved = ("spec.training.validation.testFreq",)
        yield Finding("spec.checkpoint.keepBest", "true", message, fix, "keep-best", involved)


def best_is_saved(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Only a step that is both saved and validated has a checkpoint with a score; the last one always is."""
    validation, saved, field = spec.training.validation, spec.checkpoint.save_freq, "spec.checkpoint.saveFreq"
    if not spec.checkpoint.keep_best or validation is None or validation.test_freq < 1:
        return
    tested, total = validation.test_freq, spec.training.total_steps
    test_freq, keep_best = "spec.training.validation.testFreq", "spec.checkpoint.keepBest"
    if saved < 1:
        message = "saves no checkpoint of which keepBest could keep one"
        yield Finding(field, str(saved), message, f"use {tested}, or leave keepBest out", "keep-best", (keep_best,))
    elif total is not None and max(saved, tested) < lcm(saved, tested) and lcm(saved, tested) >= total:
        message = (
            f"meets testFreq {tested} at no step before the last, {total}: keepBest has that one alone to choose from"
        )
        nearest = max(1, round(saved / tested)) * tested
        involved = (test_freq, keep_best, "spec.training.totalSteps")
        yield Finding(field, str(saved), message, f"use {nearest}, a multiple of testFreq", "keep-best", involved)


def _within(path: str, folder: str) -> bool:
    path, folder = path.rstrip("/"), folder.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")


RULES = (
    claim_is_taken_or_made,
    checkpoints_are_shared,
    mounts_are_apart,
    resumed_path_is_given,
    best_is_measured,
    best_is_saved,
)
