"""All-reduces over all ranks: correctness of the sum, bandwidth, and network transport."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from rlt_trainer.cluster.rendezvous import Rendezvous, use_interface_of
from rlt_trainer.preflight.measurements import Reduction
from rlt_trainer.preflight.nccl_log import parse_transports

SIZES = {"gloo": (2**10, 2**20, 2**24), "nccl": (2**10, 2**20, 2**28)}
"""Sizes of the all-reduces in bytes. The last one is timed."""
REPEATS = 5
"""Number of timed all-reduces."""


def all_reduce(
    rendezvous: Rendezvous, *, pod: str, address: str, rank: int, ranks: int, backend: str, timeout_s: float
) -> Reduction:
    """Join the process group and reduce. Raises the errors of torch.distributed: after `timeout_s` if ranks do not
    join."""
    with tempfile.TemporaryDirectory(prefix="rlt-preflight-") as folder:
        log = Path(folder, "nccl.log")
        if backend == "nccl":
            os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": str(log)}
        else:
            use_interface_of(address)
        dist.init_process_group(
            backend,
            init_method=f"tcp://{rendezvous.host}:{rendezvous.port}",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout_s),
        )
        try:
            device = torch.device("cuda" if backend == "nccl" else "cpu")
            wrong = tuple(size for size in SIZES[backend] if not _is_sum_correct(size, rank, ranks, device))
            seconds = _measure_seconds(SIZES[backend][-1], device)
        finally:
            dist.destroy_process_group()
        lines = log.read_text(errors="replace") if log.exists() else ""
    return Reduction(pod, wrong=wrong, seconds=seconds, bytes=SIZES[backend][-1], transports=parse_transports(lines))


def _is_sum_correct(size: int, rank: int, ranks: int, device: torch.device) -> bool:
    """Sum the rank numbers, counted from 1. float32 represents the sum exactly for up to 5792 ranks."""
    tensor = torch.full((size // 4,), float(rank + 1), device=device)
    dist.all_reduce(tensor)
    return bool((tensor == ranks * (ranks + 1) / 2).all())


def _measure_seconds(size: int, device: torch.device) -> float:
    """Return the mean time of one all-reduce. The earlier ones are the warm-up."""
    tensor = torch.zeros(size // 4, device=device)
    dist.barrier()
    _synchronize(device)
    start = time.perf_counter()
    for _ in range(REPEATS):
        dist.all_reduce(tensor)
    _synchronize(device)
    return (time.perf_counter() - start) / REPEATS


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
