"""State for torch.distributed.checkpoint (DCP): every rank writes its shards, and any number of ranks can load them.

It contains no random state: random numbers depend only on the seed, the step and the position in the batch. It contains
no learning rate, which is a function of the config and the step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful

Parts = Mapping[str, Stateful]
"""Name -> state. For models use ModelState: their names and shapes are compared before loading."""


class ModelState:
    """Trainable parameters and buffers. With LoRA only the adapter: the base weights are in model.path."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Return the shards by name."""
        return dict(get_model_state_dict(self._model, options=StateDictOptions(ignore_frozen_params=True)))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the shards."""
        set_model_state_dict(self._model, state, options=StateDictOptions(strict=False))


class FrozenState:
    """The parameters of a frozen model that a checkpoint contains: loads a saved policy as the reference."""

    def __init__(self, model: nn.Module, names: Collection[str]) -> None:
        self._model = model
        self._names = names

    def state_dict(self) -> dict[str, Any]:
        """Return the shards by name."""
        return {name: value for name, value in get_model_state_dict(self._model).items() if name in self._names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the shards."""
        set_model_state_dict(self._model, state, options=StateDictOptions(strict=False))


class OptimizerState:
    """The moments of optimizers. Learning rate, betas and weight decay come from the config."""

    def __init__(self, model: nn.Module, optimizers: tuple[torch.optim.Optimizer, ...]) -> None:
        self._model = model
        self._optimizers = optimizers

    def state_dict(self) -> dict[str, Any]:
        """Return the moments by parameter name."""
        return dict(get_optimizer_state_dict(self._model, self._optimizers))

    def list_names(self, part: str) -> set[str]:
        """Return the names of the moments in the checkpoint's part `part`."""
        moments = self.state_dict()["state"]
        return {f"{part}.state.{parameter}.{moment}" for parameter, values in moments.items() for moment in values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the moments."""
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        settings = [{key: group[key] for key in group if key != "params"} for group in groups]
        set_optimizer_state_dict(self._model, self._optimizers, state)
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]  # new objects
        for group, configured in zip(groups, settings, strict=True):
            group.update(configured)


def list_shapes(state: ModelState | FrozenState) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the full tensors by name."""
    return {name: tuple(value.shape) for name, value in state.state_dict().items() if isinstance(value, Tensor)}
