"""The ranks' state as torch.distributed.checkpoint takes it: every rank writes its shards, any number of ranks reads.

There is no random state in it: whatever is drawn depends on the seed, the step and the place in the batch alone. Nor is
there a learning rate: it is a function of the config and the step.
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
"""Name -> state. Models are ModelState: their names and shapes are compared before anything is loaded."""


class ModelState:
    """The parameters that are trained, and buffers: with LoRA the adapter alone, since the rest is in model.path."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Name -> shard."""
        return dict(get_model_state_dict(self._model, options=StateDictOptions(ignore_frozen_params=True)))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the shards."""
        set_model_state_dict(self._model, state, options=StateDictOptions(strict=False))


class FrozenState:
    """Those of a frozen model's parameters that a checkpoint has: what the policy was becomes the reference."""

    def __init__(self, model: nn.Module, names: Collection[str]) -> None:
        self._model = model
        self._names = names

    def state_dict(self) -> dict[str, Any]:
        """Name -> shard."""
        return {name: value for name, value in get_model_state_dict(self._model).items() if name in self._names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the shards."""
        set_model_state_dict(self._model, state, options=StateDictOptions(strict=False))


class OptimizerState:
    """An optimizer's moments. Learning rate, betas and weight decay stay those of the config."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model = model
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """Moments by the parameters' names."""
        return dict(get_optimizer_state_dict(self._model, self._optimizer))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the moments."""
        settings = [{key: group[key] for key in group if key != "params"} for group in self._optimizer.param_groups]
        set_optimizer_state_dict(self._model, self._optimizer, state)
        for group, configured in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(configured)


def shapes(state: ModelState | FrozenState) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the whole tensor."""
    return {name: tuple(value.shape) for name, value in state.state_dict().items() if isinstance(value, Tensor)}
