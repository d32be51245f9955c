"""The peak bytes of tensors in this process, on any device, independent of the allocator and of other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, UntypedStorage
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages of operations' results, and of given tensors, while they are alive.

    FSDP2 frees gathered weights by resizing their storage to 0: the size of each storage is read at each operation.
    """

    def __init__(self, alive: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._storages: dict[int, StorageWeakRef] = {}
        self.peak: int = 0
        self._add(alive)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count the storages that are alive."""
        result = func(*args, **(kwargs or {}))
        self._add(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        self.peak = max(self.peak, self._count())
        return result

    def _add(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if not local.is_meta:
                storage = StorageWeakRef(local.untyped_storage())  # type: ignore[no-untyped-call]
                self._storages[storage.cdata] = storage

    def _count(self) -> int:
        total = 0
        for key in list(self._storages):
            storage = UntypedStorage._new_with_weak_ptr(key)
            if storage is None:
                del self._storages[key]
            else:
                total += storage.nbytes()
        return total
