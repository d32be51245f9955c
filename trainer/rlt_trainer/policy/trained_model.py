"""A sharded model with its optimizer: what the policy and the critic have in common. All methods are collective."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Experience, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.errors import NonFiniteGradientError
from rlt_trainer.policy.offload import Offload
from rlt_trainer.policy.passes import PassSize, passes

Part = TypeVar("Part", Sequences, Experience)
T = TypeVar("T")

MAX_SKIPPED = 3
"""So many optimizer steps in a row may be skipped for a gradient that is not finite."""


class TrainedModel:
    """A model, its optimizer and its learning rate."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        learning_rate: float,
        learning_rate_field: str,
        training: Training,
        offload: Offload,
    ) -> None:
        assert isinstance(model, FSDPModule)
        self.model = model
        self._learning_rate_field = learning_rate_field
        self._training = training
        self._offload = offload
        self._skipped_in_a_row = 0
        self.restart(learning_rate)
        offload.park(model)

    def restart(self, learning_rate: float) -> None:
        """Begin with a fresh optimizer."""
        self.base_learning_rate = learning_rate
        learned = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(
            learned, lr=learning_rate, weight_decay=self._training.weight_decay, fused=True
        )

    @property
    def learning_rate(self) -> float:
        """That of the next optimizer step."""
        return float(self.optimizer.param_groups[0]["lr"])

    def scale_learning_rate(self, factor: float) -> None:
        """Let it be `factor` times the one that the stage began with."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.base_learning_rate * factor

    def learn(
        self, rows: Part, size: PassSize, share_of: Callable[[Part], tuple[Tensor, dict[str, Tensor]]]
    ) -> UpdateResult:
        """One optimizer step on `rows` of all ranks. share_of gives a pass's share of the loss and of the metrics."""
        totals: Counter[str] = Counter()
        shared_by = self._training.context_parallel_size  # so many ranks say the same numbers of the same rows
        with self._offload.on_device(self.model):
            for is_last, (_, part) in marked_last(passes(rows, size, self._offload.device)):
                # Each pass leaves every rank its part of the gradients: whole ones are as large as the model. Copies of
                # the weights (fsdp.fsdpSize) add theirs once, in the last pass. torchtitan does both; verl keeps whole
                # gradients.
                self.model.set_requires_all_reduce(is_last)
                loss, shares = share_of(part)
                # FSDP2 averages gradients over the ranks; the shares of the loss are to be added.
                (loss * dist.get_world_size()).backward()  # type: ignore[no-untyped-call]
                totals.update({name: share.item() / shared_by for name, share in shares.items()})
            return self._optimizer_step(dict(totals))

    def _optimizer_step(self, shares: dict[str, float]) -> UpdateResult:
        norm = clip_grad_norm_(self.model.parameters(), self._training.grad_clip)
        grad_norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        skipped = not math.isfinite(grad_norm)
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        if self._skipped_in_a_row == MAX_SKIPPED:
            raise NonFiniteGradientError(
                f"The norm of the gradient was {grad_norm} in {MAX_SKIPPED} optimizer steps in a row: the training has "
                f"diverged. Lower {self._learning_rate_field}, or continue from an earlier checkpoint."
            )
        if not skipped:
            with self._offload.state_on_device(self.optimizer):
                self.optimizer.step()
        self.optimizer.zero_grad()
        return UpdateResult(shares, grad_norm, skipped, self.learning_rate)


def marked_last(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """Each of `items`, and whether it is the last one."""
    end = object()
    for item, following in pairwise(chain(items, (end,))):
        yield following is end, cast(T, item)
