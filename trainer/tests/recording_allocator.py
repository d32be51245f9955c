"""torch's caching allocator for CUDA, recorded on a CPU: it keeps freed memory until a release."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from peak_bytes import PeakBytes
from torch import Tensor

from rlt_trainer.telemetry import device_memory, worker_telemetry


class RecordingAllocator(PeakBytes):  # type: ignore[no-untyped-call]
    """Records the tensors that this thread creates within the context. Their memory is reserved from their peak on.

    Its memory has no segments: a release returns everything that no tensor uses, and `unused` is always 0.
    """

    def __init__(self, *, releases: bool = True) -> None:
        """Without `releases`, it keeps its memory as before."""
        super().__init__()
        self._releases = releases

    @property
    def allocated(self) -> int:
        """Bytes of tensors."""
        return self._count()

    @property
    def reserved(self) -> int:
        """Bytes of tensors at their peak since the last release."""
        return self.peak

    def empty_cache(self) -> None:
        """Release what no tensor uses."""
        if self._releases:
            self.peak = self.allocated

    def replace_that_of_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the train worker of this process release this allocator's memory, as if it were a GPU's."""
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: self.allocated)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: self.reserved)
        monkeypatch.setattr(torch.cuda, "ipc_collect", lambda: None)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.empty_cache)
        release = device_memory.release_memory
        monkeypatch.setattr(worker_telemetry, "release_memory", lambda device: release(torch.device("cuda")))

    def _add(self, tensors: Iterable[Tensor]) -> None:
        # The other storages are not torch's: the shared memory of the weight channel, and arrays of numpy.
        super()._add(each for each in tensors if each.is_meta or each.untyped_storage().resizable())
