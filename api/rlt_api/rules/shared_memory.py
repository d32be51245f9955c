"""The size of /dev/shm. It is a memory volume: its content counts as memory of the pod."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import Resources
from rlt_api.findings.finding import Finding, use
from rlt_api.model import quantity_value
from rlt_api.rules.model_size import model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec

GiB = 2**30

SHARED_MEMORY_SHARE = 0.25
"""Default size of /dev/shm as a share of the pod's memory."""
OBJECT_STORE_SHARE = 0.6
"""Share of /dev/shm for Ray's object store; the rest is for NCCL, gloo and data loaders."""
NCCL_PER_ACCELERATOR = 1 * GiB
"""Size per accelerator for the segments of NCCL and RCCL and vLLM's message queue between processes. An estimate well
above 64 MiB, with which both fail ("failed to extend /dev/shm/nccl-...")."""
MAX_WEIGHT_BUCKET = 2 * GiB
"""Maximum size of weights in /dev/shm during a weight sync from trainer to engine."""
MAX_SHARED_MEMORY_SHARE = 0.5
"""Maximum share of the pod's memory for /dev/shm: the processes need the rest."""


@dataclass(frozen=True)
class SharedMemory:
    """The size of /dev/shm in bytes, with its parts."""

    size: int
    object_store: int
    nccl: int
    model: int
    given: bool
    """Whether the job sets the size."""

    @property
    def needed(self) -> int:
        """The sum of the parts."""
        return self.object_store + self.nccl + self.model

    def __str__(self) -> str:
        parts = [("object store", self.object_store), ("NCCL", self.nccl), ("weights", self.model)]
        return f"{format_gib(self.needed)} ({', '.join(f'{name} {format_gib(size)}' for name, size in parts)})"


def size_shared_memory(resources: Resources, *, accelerators: int = 0, parameters: float | None = None) -> SharedMemory:
    """Compute the size for a pod from its resources, accelerators and the model's parameters (2 bytes each).

    If accelerators or model increase the size, Ray's object store keeps its share of the default size.
    """
    given = int(quantity_value(resources.shared_memory)) if resources.shared_memory else None
    base = int(quantity_value(resources.memory) * SHARED_MEMORY_SHARE) if given is None else given
    object_store = int(base * OBJECT_STORE_SHARE)
    nccl = accelerators * NCCL_PER_ACCELERATOR
    model = min(MAX_WEIGHT_BUCKET, int(2 * parameters)) if parameters else MAX_WEIGHT_BUCKET * (accelerators > 0)
    size = base if given is not None else max(base, object_store + nccl + model)
    return SharedMemory(size, object_store, nccl, model, given is not None)


def size_worker_shared_memory(spec: RLTrainingJobSpec, group: WorkerGroup) -> SharedMemory:
    """Compute the size for a worker pod of the group."""
    assert group.resources
    size = model_size(spec.model) if spec.model else None
    accelerators = group.accelerator.count if group.accelerator else 0
    return size_shared_memory(group.resources, accelerators=accelerators, parameters=size.parameters if size else None)


def format_gib(size: float) -> str:
    """Format bytes as GiB, such as 1.5Gi."""
    return f"{size / GiB:.1f}Gi"


def validate_shared_memory(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The default size of /dev/shm must not exceed half of resources.memory: the processes would run out of memory."""
    for index, group in enumerate(spec.cluster.workers):
        if group.resources is None:
            continue
        memory = group.resources.memory
        shared = size_worker_shared_memory(spec, group)
        if shared.given or shared.size <= MAX_SHARED_MEMORY_SHARE * quantity_value(memory):
            continue
        field = f"spec.cluster.workers[{index}].resources.memory"
        message = f"is less than twice the size of /dev/shm, which is part of it: {shared}"
        share_of_rest = MAX_SHARED_MEMORY_SHARE - SHARED_MEMORY_SHARE * OBJECT_STORE_SHARE
        minimum = f"{int((shared.nccl + shared.model) / share_of_rest / GiB) + 1}Gi"
        fix = f"use {minimum} or more, or set resources.sharedMemory"
        involved = (f"spec.cluster.workers[{index}].accelerator.count", "spec.model")
        edits = use(field, minimum)
        yield Finding(field, memory, message, fix, rule="shared-memory", involved=involved, edits=edits)


RULES = (validate_shared_memory,)
