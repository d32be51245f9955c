"""The folder of an attempt in the run directory, for logs that outlive the pods."""

from __future__ import annotations

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.job import Job, get_attempt_number

PROGRAM_LOG = "program.log"
"""Name of the file with the output of the program."""


def step_log(step: str) -> str:
    """Name of the file with the output of a framework.prepare step."""
    return f"prepare-{step}.log"


def build_attempt_directory(job: Job, spec: RLTrainingJobSpec) -> str | None:
    """Build the path of the current or next attempt's folder; None for a job whose files end with its pods."""
    if not spec.storage.outlives_pods:
        return None
    run_directory = names.run_directory(job.name, uid=job.uid, spec=spec)
    return names.attempt_directory(run_directory, attempt=get_attempt_number(job.status))
