"""Files of NCCL and PyTorch in the folder of the Ray cluster's first attempt: flight records of collectives, and
NCCL's own log."""

from __future__ import annotations

from rlt_api.spec.accelerator_defaults import GPU_VENDORS
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core.children.attempt_directory import build_cluster_directory
from rlt_core.job import Job

FLIGHT_RECORDS = "nccl_trace_rank_"
"""Start of the flight records' names. PyTorch appends the rank."""
NCCL_LOG = "nccl-%h-%p.log"
"""Name of NCCL's log for a process: host name and process ID (NCCL_DEBUG_FILE in NCCL's documentation)."""
NCCL_FILE_VARIABLES = ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "NCCL_DEBUG_FILE")
"""The variables with paths of the files."""
TRACE_BUFFER_SIZE = 2000
"""Number of recorded events of a process: the default of PyTorch 2.13 (FlightRecorder.hpp). Earlier versions have 0."""


def build_nccl_file_env(job: Job, spec: RLTrainingJobSpec) -> dict[str, str]:
    """Build the variables of a job with GPUs whose volume outlives its pods.

    The names are those that all versions since PyTorch 2.2 read; 2.13 also has TORCH_FR_BUFFER_SIZE and
    TORCH_FR_DUMP_TEMP_FILE (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, FlightRecorder.hpp). NCCL writes a log
    with NCCL_DEBUG only.
    """
    directory = build_cluster_directory(job, spec)
    if directory is None or not _has_gpu(spec):
        return {}
    values = {
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{directory}/{FLIGHT_RECORDS}",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(TRACE_BUFFER_SIZE),
    }
    if any(variable.name == "NCCL_DEBUG" for variable in spec.cluster.env):
        values["NCCL_DEBUG_FILE"] = f"{directory}/{NCCL_LOG}"
    return values


def find_flight_records(job: Job, spec: RLTrainingJobSpec) -> str | None:
    """The pattern of the attempt's flight records. None: it has none, or they are in a place of the user's."""
    own = {variable.name for variable in spec.cluster.env}
    path = build_nccl_file_env(job, spec).get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if path is None or own & {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"}:
        return None
    return f"{path}*"


def _has_gpu(spec: RLTrainingJobSpec) -> bool:
    """Whether a worker group has GPUs with NCCL or RCCL."""
    resources = (group.accelerator.resource_name for group in spec.cluster.workers if group.accelerator)
    return any(resource.partition("/")[0] in GPU_VENDORS for resource in resources)
