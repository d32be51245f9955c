"""How large /dev/shm must be. It is a memory volume: what lies in it counts as the pod's memory."""

from __future__ import annotations

from dataclasses import dataclass

GiB = 2**30

SHARE = 0.25
"""Share of the pod's memory that /dev/shm gets at least."""
OBJECT_STORE_SHARE = 0.15
"""Share of the pod's memory for Ray's object store."""
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
    """The size for a pod with so many bytes of memory, accelerators and parameters of the model (2 bytes each)."""
    object_store = int(memory * OBJECT_STORE_SHARE)
    nccl = accelerators * NCCL_PER_ACCELERATOR
    model = min(BUCKET, int(2 * parameters)) if parameters else BUCKET * (accelerators > 0)
    size = given if given is not None else max(int(memory * SHARE), object_store + nccl + model)
    return SharedMemory(size, object_store, nccl, model, given is not None)
