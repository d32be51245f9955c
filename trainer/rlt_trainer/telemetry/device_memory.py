"""The memory that torch's allocator keeps for no tensor, and its release to the other processes on the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Release:
    """A release of a device's unused memory. All figures are in bytes."""

    cached: int
    """Memory that was reserved for no tensor before the release."""
    allocated: int
    """Memory of tensors."""
    reserved: int
    """Memory that this process still has after the release. The other processes on the device cannot use it."""

    @property
    def unused(self) -> int:
        """Memory that is still reserved for no tensor: the rest of segments in which there are tensors."""
        return self.reserved - self.allocated


def release_memory(device: torch.device) -> Release | None:
    """Return the memory to the device that torch's allocator keeps for no tensor. None on a CPU, where it keeps none.

    The allocator keeps all memory that it has reserved, for its next tensors (c10/cuda/CUDACachingAllocator.cpp).
    """
    if device.type != "cuda":
        return None
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    # First: memory that another process has opened is freed here (torch/csrc/CudaIPCTypes.cpp), if it is closed there.
    torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
    torch.cuda.empty_cache()
    return Release(cached, torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))
