"""All-reduces over ranks: correctness of the sum, bandwidth, and network transport. Needs torch in the image."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlt_pod.preflight.facts.interfaces import use_interface_of
from rlt_pod.preflight.facts.nccl_log import parse_transports

SIZES = {"gloo": (2**10, 2**20, 2**24), "nccl": (2**10, 2**20, 2**28)}
"""Sizes of the all-reduces in bytes. The last one is timed."""
REPEATS = 5
"""Number of timed all-reduces."""


@dataclass(frozen=True)
class Rendezvous:
    """The process group of one measurement."""

    address: str
    port: int
    """The port of rank 0's store."""
    ranks: int
    backend: str
    timeout_s: float
    """Time for all ranks to join."""


@dataclass(frozen=True)
class Reduction:
    """The all-reduces over all ranks, as measured by one rank."""

    pod: str
    error: str | None = None
    """The reason if the all-reduces did not complete."""
    is_unresponsive: bool = False
    """Whether the rank did not answer at all. The errors of other ranks are then timeouts of waiting for it."""
    wrong: tuple[int, ...] = ()
    """Sizes in bytes with a wrong sum."""
    seconds: float = 0.0
    """Mean time of one all-reduce with `bytes`."""
    bytes: int = 0
    transports: tuple[str, ...] = ()
    """The networks that NCCL uses between pods (nccl_log.py)."""


def import_torch() -> bool:
    """Import torch, which takes seconds to minutes from a cold disk. Return whether the image has it."""
    if find_spec("torch") is None:
        return False
    import_module("torch.distributed")
    return True


def compute_bus_bandwidth(bytes: int, seconds: float, ranks: int) -> float:
    """Compute the bus bandwidth of an all-reduce in bytes per second: 2 (n - 1) / n * bytes / seconds.

    It is comparable for any number of ranks (nccl-tests, doc/PERFORMANCE.md, AllReduce).
    """
    return 2 * (ranks - 1) / ranks * bytes / seconds


def listen_for_ranks(address: str) -> Any:
    """Start the TCPStore at which the ranks meet. It keeps its port: no other process can take it before they connect.

    It needs torch.
    """
    dist: Any = import_module("torch.distributed")
    return dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)


def all_reduce(rendezvous: Rendezvous, *, pod: str, address: str, rank: int, store: Any = None) -> Reduction:
    """Join the process group and reduce. Raises the errors of torch.distributed: after the timeout if ranks do not
    join.

    `store`: of rank 0, from `listen_for_ranks`. The other ranks connect to it.
    """
    dist: Any = import_module("torch.distributed")
    torch: Any = import_module("torch")
    backend = rendezvous.backend
    sizes = SIZES[rendezvous.backend]
    with tempfile.TemporaryDirectory(prefix="rlt-preflight-") as folder:
        log = Path(folder, "nccl.log")
        if backend == "nccl":
            os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=str(log))
        else:
            use_interface_of(address)
        timeout = timedelta(seconds=rendezvous.timeout_s)
        store = store or dist.TCPStore(rendezvous.address, rendezvous.port, is_master=False, timeout=timeout)
        store.set_timeout(timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=rendezvous.ranks, timeout=timeout)
        try:
            device = torch.device("cuda" if backend == "nccl" else "cpu")
            wrong = tuple(size for size in sizes if not _is_sum_correct(size, rank, rendezvous.ranks, device))
            seconds = _measure_seconds(sizes[-1], device)
        finally:
            dist.destroy_process_group()
        lines = log.read_text(errors="replace") if log.exists() else ""
    return Reduction(pod, wrong=wrong, seconds=seconds, bytes=sizes[-1], transports=parse_transports(lines))


def _is_sum_correct(size: int, rank: int, ranks: int, device: Any) -> bool:
    """Sum the rank numbers, counted from 1. float32 represents the sum exactly for up to 5792 ranks."""
    torch = import_module("torch")
    dist = import_module("torch.distributed")
    tensor = torch.full((size // 4,), float(rank + 1), device=device)
    dist.all_reduce(tensor)
    return bool((tensor == ranks * (ranks + 1) / 2).all())


def _measure_seconds(size: int, device: Any) -> float:
    """Return the mean time of one all-reduce. The earlier ones are the warm-up."""
    torch = import_module("torch")
    dist = import_module("torch.distributed")
    tensor = torch.zeros(size // 4, device=device)
    dist.barrier()
    _synchronize(device)
    start = time.perf_counter()
    for _ in range(REPEATS):
        dist.all_reduce(tensor)
    _synchronize(device)
    return (time.perf_counter() - start) / REPEATS


def _synchronize(device: Any) -> None:
    if device.type == "cuda":
        import_module("torch").cuda.synchronize()
