"""The checkpoint of another job that a job resumes from (spec.checkpoint.resumeFromJob)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlt_api.frameworks.registry import FRAMEWORKS
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.job import Job

FIELD = "spec.checkpoint.resumeFromJob"


@dataclass(frozen=True)
class Missing:
    """Why there is no checkpoint to resume from."""

    message: str
    """A sentence with the fix."""
    is_final: bool = False
    """Whether waiting does not help."""
    is_stalled: bool = False
    """Whether the job waits for a person."""


def waits_for_earlier_job(spec: RLTrainingJobSpec) -> bool:
    """Return whether the spec has the name of the other job, and not yet the path of its checkpoint."""
    return spec.checkpoint.resume == "job"


def resume_from(job: Job, path: str) -> Job:
    """Replace resumeFromJob by the checkpoint in `path`, in the spec and in the resolved spec."""
    assert job.spec
    assert job.resolved_spec
    checkpoint = job.spec.checkpoint.model_copy(
        update={"resume": "path", "resume_from_path": path, "resume_from_job": None}
    )
    resolved = {**job.resolved_spec, "checkpoint": checkpoint.model_dump(mode="json", by_alias=True)}
    return replace(job, spec=job.spec.model_copy(update={"checkpoint": checkpoint}), resolved_spec=resolved)


def find_checkpoint(spec: RLTrainingJobSpec, other: Job | None) -> str | Missing:
    """Find the folder of `other`'s latest checkpoint in the pods of `spec`, which names `other`."""
    name = spec.checkpoint.resume_from_job
    if other is None:
        return _miss(name, "does not exist in this namespace: create it to start this job", is_stalled=True)
    if not other.has_ended:
        return _miss(name, "has not ended: this job starts from its latest checkpoint then")
    saved = other.status.checkpoint
    if other.spec is None or saved is None or saved.path is None or saved.latest_step is None:
        fix = "use a job whose checkpoint.saveFreq is 1 or more"
        return _miss(name, f"has ended without a checkpoint: {fix}", is_final=True)
    if other.spec.framework.type != spec.framework.type:
        found = f"has framework.type {other.spec.framework.type}, and this job {spec.framework.type}"
        return _miss(name, f"{found}: use a job of the same framework", is_final=True)
    claim = find_claim(other.name, other.spec)
    if claim != spec.storage.claim_name:
        where = f"on PVC {claim}" if claim else "on a volume that is deleted with its pods"
        fix = f"use spec.storage.claimName: {claim}" if claim else "use a job with storage.claimName"
        return _miss(name, f"has its checkpoints {where}: {fix}", is_final=True)
    theirs = names.mount_path(other.spec).rstrip("/")
    ours = names.mount_path(spec).rstrip("/")
    folder = build_step_folder(spec.framework.type, saved.path, saved.latest_step)
    return ours + folder[len(theirs) :] if folder.startswith(f"{theirs}/") else folder


def reject_earlier_job(spec: RLTrainingJobSpec) -> None:
    """Raise ValueError for a job that runs without Kubernetes, where no status of the other job exists."""
    if waits_for_earlier_job(spec):
        message = f"{FIELD}: {spec.checkpoint.resume_from_job} is found on Kubernetes alone"
        raise ValueError(f"{message}: use resume: path, with the folder of its checkpoint in resumeFromPath")


def build_step_folder(framework: str, checkpoints: str, step: int) -> str:
    """Build the path of a step's checkpoint, as the builtin trainer or verl names it."""
    return f"{checkpoints.rstrip('/')}/{FRAMEWORKS[framework].step_folder}{step}"


def find_claim(job: str, spec: RLTrainingJobSpec) -> str | None:
    """Find the name of a job's PVC. None if its storage is deleted with its pods."""
    return spec.storage.claim_name or (names.pvc(job) if spec.storage.storage_class_name else None)


def _miss(name: str | None, problem: str, *, is_final: bool = False, is_stalled: bool = False) -> Missing:
    return Missing(f"{FIELD}: RLTrainingJob {name} {problem}.", is_final, is_stalled)
