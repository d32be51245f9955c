"""How large /dev/shm must be. It is a memory volume: what lies in it counts as the pod's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.blocks.resources import Resources
from rlt_api.finding import Finding
from rlt_api.model import quantity_value
from rlt_api.rules.model_size import model_size
from rlt_api.spec import RLTrainingJobSpec

GiB = 2**30

SHARED_MEMORY_SHARE = 0.25
"""Share of a pod's memory that /dev/shm gets if nobody says, and nothing needs more."""
OBJECT_STORE_SHARE = 0.6
"""Share of that for Ray's object store; the rest is for NCCL, gloo and data loaders."""
NCCL_PER_ACCELERATOR = 1 * GiB
"""For NCCL's and RCCL's segments and vLLM's message queue between processes, for each accelerator. An estimate, on the
safe side of 64 MiB, with which both fail ("failed to extend /dev/shm/nccl-...")."""
BUCKET = 2 * GiB
"""The most of a model's weights that is in /dev/shm at a time while they go from trainer to engine."""
LIMIT = 0.5
"""Share of the pod's memory that /dev/shm may have: the processes need the rest."""


@dataclass(frozen=True)
class SharedMemory:
    """The size of /dev/shm in bytes, and what it is made of."""

    size: int
    object_store: int
    nccl: int
    model: int
    given: bool
    """Whether the job gives the size itself."""

    @property
    def needed(self) -> int:
        """The sum of the parts."""
        return self.object_store + self.nccl + self.model

    def __str__(self) -> str:
        parts = f"object store {gib(self.object_store)}, NCCL {gib(self.nccl)}, weights {gib(self.model)}"
        return f"{gib(self.needed)} ({parts})"


def shared_memory(resources: Resources, *, accelerators: int = 0, parameters: float | None = None) -> SharedMemory:
    """The size for a pod with such resources, accelerators and parameters of the model (2 bytes each).

    Ray's object store has its share of it, but of a size that accelerators or model make larger it gets no more.
    """
    given = int(quantity_value(resources.shared_memory)) if resources.shared_memory else None
    least = int(quantity_value(resources.memory) * SHARED_MEMORY_SHARE) if given is None else given
    object_store = int(least * OBJECT_STORE_SHARE)
    nccl = accelerators * NCCL_PER_ACCELERATOR
    model = min(BUCKET, int(2 * parameters)) if parameters else BUCKET * (accelerators > 0)
    size = least if given is not None else max(least, object_store + nccl + model)
    return SharedMemory(size, object_store, nccl, model, given is not None)


def shared_memory_of(spec: RLTrainingJobSpec, group: WorkerGroup) -> SharedMemory:
    """The size for a worker of the group."""
    assert group.resources
    size = model_size(spec.model) if spec.model else None
    accelerators = group.accelerator.count if group.accelerator else 0
    return shared_memory(group.resources, accelerators=accelerators, parameters=size.parameters if size else None)


def gib(size: float) -> str:
    """Bytes for people."""
    return f"{size / GiB:.1f}Gi"


def shared_memory_leaves_enough(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Most of the pod's memory would be /dev/shm: its processes are killed for the rest."""
    for index, group in enumerate(spec.cluster.workers):
        if group.resources is None:
            continue
        shared = shared_memory_of(spec, group)
        if shared.given or shared.size <= LIMIT * quantity_value(group.resources.memory):
            continue
        enough = (shared.nccl + shared.model) / (LIMIT - SHARED_MEMORY_SHARE * OBJECT_STORE_SHARE)
        field = f"spec.cluster.workers[{index}]"
        yield Finding(
            f"{field}.resources.memory",
            group.resources.memory,
            f"/dev/shm is part of it and needs {shared}, more than half",
            f"use {int(enough / GiB) + 1}Gi or more, or give resources.sharedMemory",
            "shared-memory",
            (f"{field}.accelerator.count", "spec.model"),
        )


RULES = (shared_memory_leaves_enough,)
