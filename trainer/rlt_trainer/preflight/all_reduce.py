"""All-reduces over all ranks: is the sum right everywhere, how fast is it, over which network."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from rlt_trainer.preflight.measured import Reduction
from rlt_trainer.preflight.nccl_log import transports
from rlt_trainer.workers.rendezvous import Rendezvous, use_interface_of

SIZES = {"gloo": (2**10, 2**20, 2**24), "nccl": (2**10, 2**20, 2**28)}
"""Bytes of the all-reduces. The last is timed."""
REPEATS = 5


def all_reduce(
    meeting: Rendezvous, *, pod: str, address: str, rank: int, ranks: int, backend: str, patience_s: float
) -> Reduction:
    """Join the group and reduce. Raises what torch.distributed raises, after `patience_s` if others do not come."""
    with tempfile.TemporaryDirectory(prefix="rlt-preflight-") as folder:
        log = Path(folder, "nccl.log")
        if backend == "nccl":
            os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": str(log)}
        else:
            use_interface_of(address)
        dist.init_process_group(
            backend,
            init_method=f"tcp://{meeting.host}:{meeting.port}",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=patience_s),
        )
        try:
            device = torch.device("cuda" if backend == "nccl" else "cpu")
            wrong = tuple(size for size in SIZES[backend] if not _sum_is_right(size, rank, ranks, device))
            seconds = _seconds(SIZES[backend][-1], device)
        finally:
            dist.destroy_process_group()
        said = log.read_text(errors="replace") if log.exists() else ""
    return Reduction(pod, wrong=wrong, seconds=seconds, bytes=SIZES[backend][-1], transports=transports(said))


def _sum_is_right(size: int, rank: int, ranks: int, device: torch.device) -> bool:
    """Every rank gives its number, from 1 on: float32 holds the sum exactly, up to 5792 ranks."""
    tensor = torch.full((size // 4,), float(rank + 1), device=device)
    dist.all_reduce(tensor)
    return bool((tensor == ranks * (ranks + 1) / 2).all())


def _seconds(size: int, device: torch.device) -> float:
    """Mean time of one, after those that have warmed up."""
    tensor = torch.zeros(size // 4, device=device)
    dist.barrier()
    _wait(device)
    start = time.perf_counter()
    for _ in range(REPEATS):
        dist.all_reduce(tensor)
    _wait(device)
    return (time.perf_counter() - start) / REPEATS


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
