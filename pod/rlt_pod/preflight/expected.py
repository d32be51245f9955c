"""What the checks expect of the cluster. The operator writes it to the ConfigMap as EXPECTED_FILE."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

EXPECTED_FILE = "preflight.json"
"""Name of the file, next to the program."""


@dataclass(frozen=True)
class Group:
    """The worker pods of a group, or the head."""

    name: str
    replicas: int
    """Number of pods. The largest one that the job may have, if it can change."""
    cpus: int
    """CPUs of a pod in Ray."""
    devices: int
    """Accelerators of a pod."""
    shared_memory: int
    """Size of /dev/shm in bytes."""
    device_memory: int = 0
    """Memory of an accelerator in bytes. 0: not known."""
    min_replicas: int | None = None
    """Number of pods with which the program starts. None: all."""

    @property
    def needed(self) -> int:
        """Number of pods without which the program does not start."""
        return self.min_replicas or self.replicas


@dataclass(frozen=True)
class Engine:
    """The engine of the job, which generates a line in the stage services."""

    name: str
    """vllm or sglang."""
    model: str
    """Folder, or name on the hub."""
    tensor_parallel_size: int
    options: dict[str, Any]
    """Further arguments of vllm.LLM or sglang.Engine."""


@dataclass(frozen=True)
class Trial:
    """One step of a program other than rlt's trainer, for the stage training."""

    command: list[str]
    resume: list[str] | None
    """A second start, which loads the checkpoint and makes a further step. None: unknown."""
    directory: str
    """Folder for the files of the step, which is removed afterwards."""
    working_directory: str | None = None
    prints_steps: bool = True
    """Whether a step without a line in the output counts as not done."""


@dataclass(frozen=True)
class Repository:
    """A repository of the Hugging Face hub that the program reads."""

    name: str
    kind: str
    """model or dataset."""
    revision: str | None
    """Branch, tag or commit. None: main."""


@dataclass(frozen=True)
class ObjectPath:
    """A model, data or a checkpoint in a bucket."""

    field: str
    """The field that names them."""
    url: str
    """s3://BUCKET/KEY."""
    kind: str
    """A key of MARKS (rlt_pod/download/objects.py), or data."""


@dataclass(frozen=True)
class Bucket:
    """The bucket of the run, instead of a shared run directory."""

    url: str
    command: list[str]
    """The program that verifies it (facts/bucket.py)."""
    groups: list[str]
    """The worker groups that use it."""


@dataclass(frozen=True)
class NotPossible:
    """A check of level full that is not possible for a job."""

    name: str
    stage: str
    reason: str
    remedy: str


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
    repositories: list[Repository] = field(default_factory=list)
    """Models and data sets on the hub."""
    chat_template_of: str | None = None
    """The model folder whose chat template is used. None: unknown, or the job has its own."""
    chat_template: str | None = None
    """The chat template of the job. None: the tokenizer's."""
    checkpoint_bytes: int | None = None
    """Bytes of a checkpoint. None: unknown."""
    export_bytes: int | None = None
    """Bytes of the exported model. None: unknown."""
    checkpoints: int = 1
    """Number of checkpoints on the volume at the same time."""
    min_bus_bandwidth: float | None = None
    """Minimum bus bandwidth of the all-reduce, in bytes per second. None: no minimum."""
    bfloat16: bool = False
    """Whether the engine computes in bfloat16, as far as the job states it."""
    trial: list[str] | None = None
    """The program of rlt's trainer for the stage training. None: another framework, or level basic."""
    engine: Engine | None = None
    """None: unknown, rlt's trainer, which starts it in the stage training, or level basic."""
    framework_trial: Trial | None = None
    """The stage training of other frameworks."""
    bucket: Bucket | None = None
    objects: list[ObjectPath] = field(default_factory=list)
    """Models and data in a bucket, which have not been downloaded."""
    endpoint: str | None = None
    """URL of their server. None: Amazon's S3."""
    not_possible: list[NotPossible] = field(default_factory=list)
    """The checks of level full that this job cannot have."""


def dump_expected(expected: Expected) -> str:
    """Write it as JSON."""
    return json.dumps(asdict(expected), indent=2)


def parse_expected(text: str) -> Expected:
    """Parse the JSON of `dump_expected`."""
    fields: dict[str, Any] = json.loads(text)
    engine = fields.get("engine")
    trial = fields.get("framework_trial")
    bucket = fields.get("bucket")
    parts = {
        "head": Group(**fields["head"]),
        "workers": [Group(**each) for each in fields["workers"]],
        "engine": Engine(**engine) if engine else None,
        "framework_trial": Trial(**trial) if trial else None,
        "bucket": Bucket(**bucket) if bucket else None,
        "objects": [ObjectPath(**each) for each in fields.get("objects", ())],
        "repositories": [Repository(**each) for each in fields.get("repositories", ())],
        "not_possible": [NotPossible(**each) for each in fields.get("not_possible", ())],
    }
    return Expected(**{**fields, **parts})
