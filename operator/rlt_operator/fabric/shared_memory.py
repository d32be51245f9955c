"""How large /dev/shm must be. It is a memory volume: what lies in it counts as the pod's memory."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_api.blocks.resources import Resources
from rlt_api.model import quantity_value
from rlt_api.rules.pods import OBJECT_STORE_SHARE, SHARED_MEMORY_SHARE

GiB = 2**30

NCCL_PER_ACCELERATOR = 1 * GiB
"""For NCCL's and RCCL's segments and vLLM's message queue between processes, for each accelerator. An estimate, on the
safe side of 64 MiB, with which both fail (failure C6: "failed to extend /dev/shm/nccl-...")."""
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


def shared_memory(
    memory: int, *, accelerators: int, parameters: float | None = None, given: int | None = None
) -> SharedMemory:
    """The size for a pod with so many bytes of memory, accelerators and parameters of the model (2 bytes each).

    Ray's object store has its share of it, but of a size that accelerators or model make larger it gets no more.
    """
    least = int(memory * SHARED_MEMORY_SHARE) if given is None else given
    object_store = int(least * OBJECT_STORE_SHARE)
    nccl = accelerators * NCCL_PER_ACCELERATOR
    model = min(BUCKET, int(2 * parameters)) if parameters else BUCKET * (accelerators > 0)
    size = least if given is not None else max(least, object_store + nccl + model)
    return SharedMemory(size, object_store, nccl, model, given is not None)


def of_resources(resources: Resources, *, accelerators: int = 0, parameters: float | None = None) -> SharedMemory:
    """The same for what a pod asks for."""
    given = int(quantity_value(resources.shared_memory)) if resources.shared_memory else None
    memory = int(quantity_value(resources.memory))
    return shared_memory(memory, accelerators=accelerators, parameters=parameters, given=given)
