"""The device mesh and the process groups of training."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rlt_api.blocks.training import Training

EXPERT_DIMENSION = "expert"
"""The name of the mesh dimension over which experts are split."""


def create_mesh(device_type: str, training: Training, ranks: int) -> DeviceMesh:
    """Create the mesh of all ranks: one dimension that shards the weights, and with fsdp.fsdpSize one of replicas.

    Raises ValueError if fsdp.fsdpSize does not divide the number of ranks. Collective.
    """
    size = (training.fsdp.fsdp_size if training.fsdp else None) or ranks
    if ranks % size:
        raise ValueError(f"training.fsdp.fsdpSize: {size} does not divide the number of ranks, {ranks}. Use a divisor.")
    if size == ranks:
        return init_device_mesh(device_type, (ranks,), mesh_dim_names=("shard",))
    return init_device_mesh(device_type, (ranks // size, size), mesh_dim_names=("replicate", "shard"))


def wait_for_ranks() -> None:
    """Wait until all ranks call this. NCCL gets the device: it would guess one from the rank, with a warning."""
    on_gpu = dist.get_backend() == dist.Backend.NCCL
    dist.barrier(device_ids=[torch.cuda.current_device()] if on_gpu else None)


def set_collective_timeout(seconds: int) -> None:
    """Set the timeout of all process groups: init_device_mesh gives its own PyTorch's default (600 s with NCCL, 1800 s
    with gloo; torch/distributed/constants.py)."""
    for group in distributed_c10d._world.pg_map:
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def data_parallel_size(training: Training, ranks: int) -> int:
    """Number of ranks, or of rank groups that share each sequence, with separate rows.

    Rank r has the rows of part r // contextParallelSize. Raises ValueError if the sizes do not divide.
    """
    groups, rest = divmod(ranks, training.context_parallel_size)
    if rest:
        raise ValueError(
            f"training.contextParallelSize: {training.context_parallel_size} does not divide the number of ranks, "
            f"{ranks}. Use a divisor."
        )
    return groups


def create_expert_mesh(device_type: str, training: Training, ranks: int) -> DeviceMesh | None:
    """Create the mesh of the experts' weights: ranks with the same experts, times the ranks that split the experts.

    None without expertParallelSize. Raises ValueError if it does not divide the number of ranks. Collective.
    """
    size = training.expert_parallel_size
    if size == 1:
        return None
    if ranks % size:
        raise ValueError(
            f"training.expertParallelSize: {size} does not divide the number of ranks, {ranks}. Use a divisor."
        )
    mesh = init_device_mesh(device_type, (ranks // size, size), mesh_dim_names=("shard", EXPERT_DIMENSION))
    mesh._flatten()  # one all-reduce of a norm instead of two
    return mesh


def create_context_group(device_type: str, training: Training, ranks: int) -> ProcessGroup | None:
    """Create the group of ranks that share each sequence with this rank; None if none do. Collective."""
    size = training.context_parallel_size
    if size == 1:
        return None
    shape = (data_parallel_size(training, ranks), size)
    return init_device_mesh(device_type, shape, mesh_dim_names=("data", "context"))["context"].get_group()
