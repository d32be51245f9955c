"""What the checks expect of the cluster. The operator writes it to the ConfigMap as EXPECTED_FILE."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

EXPECTED_FILE = "preflight.json"
"""Name of the file, next to the program."""


@dataclass(frozen=True)
class Group:
    """The worker pods of a group, or the head."""

    name: str
    replicas: int
    cpus: int
    """CPUs of a pod in Ray."""
    devices: int
    """Accelerators of a pod."""
    shared_memory: int
    """Size of /dev/shm in bytes."""
    device_memory: int = 0
    """Memory of an accelerator in bytes. 0: not known."""


@dataclass(frozen=True)
class Expected:
    """The cluster and the files of a job."""

    level: str
    """basic or full."""
    head: Group
    workers: list[Group]
    head_service: str
    """Name of the head's Service. Empty: none."""
    run_directory: str
    shared_storage: bool
    """Whether all pods share the run directory."""
    require_rdma: bool
    """Whether NCCL must use RDMA instead of TCP."""
    models: list[str]
    """Folders of models, which every pod reads."""
    data_files: list[str]
    """Files and folders with prompts, which the head reads."""
    chat_template_of: str | None = None
    """The model folder whose chat template is used. None: unknown, or the job has its own."""
    checkpoint_bytes: int | None = None
    """Bytes of a checkpoint. None: unknown."""
    export_bytes: int | None = None
    """Bytes of the exported model. None: unknown."""
    checkpoints: int = 1
    """Number of checkpoints on the volume at the same time."""
    min_bus_bandwidth: float | None = None
    """Minimum bus bandwidth of the all-reduce, in bytes per second. None: no minimum."""
    trial: list[str] | None = None
    """The program of the stage training. None: the stage is empty."""


def dump_expected(expected: Expected) -> str:
    """Write it as JSON."""
    return json.dumps(asdict(expected), indent=2)


def parse_expected(text: str) -> Expected:
    """Parse the JSON of `dump_expected`."""
    fields: dict[str, Any] = json.loads(text)
    return Expected(
        **{**fields, "head": Group(**fields["head"]), "workers": [Group(**each) for each in fields["workers"]]}
    )
