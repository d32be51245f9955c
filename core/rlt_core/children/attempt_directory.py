"""The folder of an attempt in the run directory or the bucket, for logs that outlive the pods."""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.job import Job, get_attempt_number, get_cluster_attempt_number

PROGRAM_LOG = "program.log"
"""Name of the file with the output of the program."""


def step_log(step: str) -> str:
    """Name of the file with the output of a framework.prepare step."""
    return f"prepare-{step}.log"


def build_log_options(job: Job, spec: RLTrainingJobSpec, file: str) -> list[str]:
    """Build the options with which run-command keeps the output of the current or next attempt as `file`."""
    if directory := build_attempt_directory(job, spec):
        return ["--log", f"{directory}/{file}"]
    url = names.run_url(job.name, uid=job.uid, spec=spec)
    if url is None:
        return []
    folder = names.attempt_directory(url, attempt=get_attempt_number(job.status))
    endpoint = ["--log-endpoint", spec.storage.endpoint] if spec.storage.endpoint else []
    return ["--log", f"{folder}/{file}", *endpoint]


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
