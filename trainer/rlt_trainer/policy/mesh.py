"""How the ranks are arranged."""

from __future__ import annotations

from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rlt_api.blocks.training import Training


def training_mesh(device_type: str, training: Training, ranks: int) -> DeviceMesh:
    """All ranks: one dimension that the weights are cut along, or with fsdp.fsdpSize a second one of whole copies.

    Raises ValueError where the sizes do not divide. Collective.
    """
    size = (training.fsdp.fsdp_size if training.fsdp else None) or ranks
    if ranks % size:
        raise ValueError(f"training.fsdp.fsdpSize {size} must divide the number of ranks, {ranks}.")
    if size == ranks:
        return init_device_mesh(device_type, (ranks,), mesh_dim_names=("shard",))
    return init_device_mesh(device_type, (ranks // size, size), mesh_dim_names=("replicate", "shard"))


def data_parallel_size(training: Training, ranks: int) -> int:
    """How many ranks, or groups of ranks that share each sequence, have rows of their own: rank r those of part
    r // contextParallelSize.

    Raises ValueError where the sizes do not divide.
    """
    groups, rest = divmod(ranks, training.context_parallel_size)
    if rest:
        raise ValueError(
            f"training.contextParallelSize {training.context_parallel_size} must divide the number of ranks, {ranks}."
        )
    return groups


def context_group(device_type: str, training: Training, ranks: int) -> ProcessGroup | None:
    """The ranks that share each sequence with this one; None where each has its own. Collective."""
    size = training.context_parallel_size
    if size == 1:
        return None
    shape = (data_parallel_size(training, ranks), size)
    return init_device_mesh(device_type, shape, mesh_dim_names=("data", "context"))["context"].get_group()
