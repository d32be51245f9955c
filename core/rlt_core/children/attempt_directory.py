"""The folder of an attempt in the run directory, for logs that outlive the pods."""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.job import Job, get_attempt_number, get_cluster_attempt_number

PROGRAM_LOG = "program.log"
"""Name of the file with the output of the program."""


def step_log(step: str) -> str:
    """Name of the file with the output of a framework.prepare step."""
    return f"prepare-{step}.log"


def build_attempt_directory(job: Job, spec: RLTrainingJobSpec) -> str | None:
    """Build the path of the current or next attempt's folder; None for a job whose files end with its pods."""
    return _build_directory(job, spec, get_attempt_number(job.status))


def build_cluster_directory(job: Job, spec: RLTrainingJobSpec) -> str | None:
    """Build the path of the folder in the variables of the current or next pods: the first attempt's on their
    RayCluster. None as in `build_attempt_directory`."""
    return _build_directory(job, spec, get_cluster_attempt_number(job.status))


def _build_directory(job: Job, spec: RLTrainingJobSpec, attempt: int) -> str | None:
    if not spec.storage.outlives_pods:
        return None
    run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    return names.attempt_directory(run_directory, attempt=attempt)
