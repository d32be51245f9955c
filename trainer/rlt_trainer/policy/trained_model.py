"""A sharded model with its optimizer: the common part of actor and critic. All methods are collective."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from rlt_api.blocks.training import Training
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.errors import NonFiniteGradientError
from rlt_trainer.policy.gradient_norm import clip_gradients
from rlt_trainer.policy.micro_batches import MicroBatchSize, Part, RowValues, split_micro_batches
from rlt_trainer.policy.offload import Offload
from rlt_trainer.policy.optimizers import build_optimizers
from rlt_trainer.policy.sharded_model import Kind, ModelOptions, load_sharded_model

T = TypeVar("T")

MAX_SKIPPED = 3
"""Number of consecutive optimizer steps with a non-finite gradient that ends the training."""


@dataclass(frozen=True)
class Share:
    """A micro-batch's share of an optimizer step."""

    loss: Tensor
    """A scalar, with gradient."""
    metrics: dict[str, Tensor]
    """Name -> a scalar, without gradient."""
    values: tuple[Tensor, ...] = ()
    """Values of the tokens to keep, [b, T] each."""


class TrainedModel:
    """A model, its optimizers and its learning rate."""

    def __init__(
        self,
        kind: Kind,
        files: str,
        options: ModelOptions,
        forward: Callable[..., Any],
        *,
        learning_rate: float,
        learning_rate_field: str,
        training: Training,
        offload: Offload,
    ) -> None:
        """Load the sharded model in the folder `files`, whose forward becomes `forward`, with a new optimizer.

        learning_rate_field: the field to name in error messages.
        """
        model = load_sharded_model(kind, files, options, forward)
        assert isinstance(model, FSDPModule)
        self.model = model
        self._learning_rate_field = learning_rate_field
        self._training = training
        self._offload = offload
        self._is_on_device = False
        self._skipped_in_a_row = 0
        self.reset_optimizer(learning_rate)
        offload.offload(model)

    def reset_optimizer(self, learning_rate: float) -> None:
        """Replace the optimizers by new ones without state."""
        self.base_learning_rate = learning_rate
        self.optimizers = build_optimizers(self.model, self._training, learning_rate)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next optimizer step."""
        return float(self.optimizers[0].param_groups[0]["lr"])

    def scale_learning_rate(self, factor: float) -> None:
        """Set the learning rate to `factor` times its value at the start of the stage."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.base_learning_rate * factor

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Hold weights and optimizer state on the device. A context within another one moves nothing: the optimizer
        steps of all mini-batches need one transfer."""
        if self._is_on_device:
            yield
            return
        self._is_on_device = True
        try:
            with self._offload.on_device(self.model, *self.optimizers):
                yield
        finally:
            self._is_on_device = False

    def train_step(
        self,
        rows: Part,
        size: MicroBatchSize,
        compute_share: Callable[[Part], Share],
        *,
        values: RowValues | None = None,
    ) -> UpdateResult:
        """Take one optimizer step on `rows` of all ranks.

        compute_share: returns a micro-batch's share of the loss, of the metrics, and values [b, T] to keep.
        values: receives the values to keep.
        """
        totals = list[dict[str, Tensor]]()
        shared_by = self._training.context_parallel_size  # this number of ranks reports the same rows
        with self.on_device():
            for is_last, (numbers, part) in mark_last(split_micro_batches(rows, size, self._offload.device)):
                # Gradients are reduce-scattered after each micro-batch: full ones are as large as the model. Replicas
                # (fsdp.fsdpSize) all-reduce theirs once, after the last micro-batch. torchtitan does both; verl keeps
                # full gradients.
                self.model.set_requires_all_reduce(is_last)
                share = compute_share(part)
                # FSDP2 averages gradients over the ranks, but the shares of the loss must be added.
                (share.loss * dist.get_world_size()).backward()  # type: ignore[no-untyped-call]
                totals.append(share.metrics)
                if values is not None:
                    values.add(numbers, share.values)
            return self._optimizer_step(add_up(totals, shared_by))

    def _optimizer_step(self, shares: dict[str, float]) -> UpdateResult:
        grad_norm = clip_gradients(self.model.parameters(), self._training.grad_clip)
        skipped = not math.isfinite(grad_norm)
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        if self._skipped_in_a_row == MAX_SKIPPED:
            raise NonFiniteGradientError(
                f"The norm of the gradient was {grad_norm} in {MAX_SKIPPED} optimizer steps in a row: the training "
                f"diverged. Lower {self._learning_rate_field}, or continue from an earlier checkpoint."
            )
        for optimizer in self.optimizers:
            if not skipped:
                optimizer.step()
            optimizer.zero_grad()
        return UpdateResult(shares, grad_norm, skipped, self.learning_rate)


def add_up(shares: Sequence[dict[str, Tensor]], shared_by: int) -> dict[str, float]:
    """Add the scalars of all micro-batches, divided by `shared_by`, with one transfer from the device."""
    names = list(shares[0])
    scalars = torch.stack([torch.stack([each[name].double() for name in names]) for each in shares])
    return dict(zip(names, (scalars.sum(0) / shared_by).tolist(), strict=True))


def mark_last(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """Yield each item, and whether it is the last one."""
    end = object()
    for item, following in pairwise(chain(items, (end,))):
        yield following is end, cast(T, item)
