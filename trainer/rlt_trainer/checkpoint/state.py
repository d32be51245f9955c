"""The policy's state in torch.distributed.checkpoint: every rank writes its shards, any number of ranks reads them.

There is no random state in it: whatever is drawn depends on the seed and the step alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from rlt_trainer.checkpoint import marker


def save(checkpoints: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write the whole checkpoint of `step`. Collective."""
    if dist.get_rank() == 0:
        marker.prepare(checkpoints, step)
    dist.barrier()
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments, "step": step}
    dcp_save(state, checkpoint_id=marker.partial_directory(checkpoints, step))
    if dist.get_rank() == 0:
        marker.commit(checkpoints, step)
    dist.barrier()


def load(checkpoints: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Read weights and optimizer of `step`. Collective."""
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments, "step": 0}
    dcp_load(state, checkpoint_id=marker.checkpoint_directory(checkpoints, step))
    assert state["step"] == step
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def load_model(checkpoints: Path, step: int, model: nn.Module) -> None:
    """Read the weights of `step` alone. Collective."""
    state = {"model": get_model_state_dict(model)}
    dcp_load(state, checkpoint_id=marker.checkpoint_directory(checkpoints, step))
    set_model_state_dict(model, state["model"])
