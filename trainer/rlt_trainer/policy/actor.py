"""The policy: forward passes, supervised steps and PPO updates over FSDP2."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.training import Training
from rlt_trainer.algorithms.aggregation import aggregate, masked_sum
from rlt_trainer.algorithms.kl import k3
from rlt_trainer.algorithms.losses import ppo_clip_loss
from rlt_trainer.errors import TrainingError
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.model import full_weights, load_model, shard
from rlt_trainer.policy.update_result import UpdateResult
from rlt_trainer.sequences import Experience, MiniBatch, Sequences

Rows = TypeVar("Rows", Sequences, Experience)

MAX_SKIPPED = 3
"""So many optimizer steps in a row may be skipped for a gradient that is not finite."""


class Policy:
    """The trained model with optimizer and, if there is a KL term, its frozen reference. All methods are collective."""

    def __init__(
        self,
        files: str,
        *,
        dtype: torch.dtype,
        mesh: DeviceMesh,
        algorithm: Algorithm,
        training: Training,
        temperature: float,
    ) -> None:
        self._algorithm = algorithm
        self._training = training
        self._temperature = temperature
        self._device = torch.device(mesh.device_type)
        self._skipped_in_a_row = 0
        self.model = shard(load_model(files, torch.float32), mesh, dtype)
        self.reference: PreTrainedModel | None = None
        if algorithm.kl_loss_coef > 0:
            self.reference = shard(load_model(files, torch.float32), mesh, dtype).requires_grad_(False)
        self.optimizer = self._adamw(training.learning_rate)

    def start_stage(self, learning_rate: float) -> None:
        """Begin a stage with a fresh optimizer and with the policy as it is now as its reference."""
        self.optimizer = self._adamw(learning_rate)
        if self.reference is not None:
            with torch.no_grad():
                for frozen, current in zip(self.reference.parameters(), self.model.parameters(), strict=True):
                    frozen.copy_(current)

    def log_probs(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of this rank's responses under the policy: [B, T] on the CPU."""
        return self._log_probs(self.model, sequences, self._temperature)

    def ref_log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities of this rank's responses under the reference: [B, T] on the CPU."""
        assert self.reference is not None, "there is a reference only with klLossCoef > 0"
        return self._log_probs(self.reference, sequences, self._temperature)[0]

    def probe_log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities at temperature 1, to compare with the rollout engine's: [B, T] on the CPU."""
        return self._log_probs(self.model, sequences, 1.0)[0]

    def supervised_step(self, sequences: Sequences, total_tokens: int) -> UpdateResult:
        """One optimizer step on the mean negative log-likelihood over `total_tokens`, counted over all ranks."""
        loss_share = 0.0
        for micro in self._micro_batches(sequences):
            micro = micro.to(self._device)
            log_probs, _ = response_log_probs(self.model, micro, temperature=1.0)
            loss = masked_sum(-log_probs, micro.response_mask) / total_tokens
            self._backward(loss)
            loss_share += loss.item()
        return self._optimizer_step({"warmup/loss": loss_share})

    def update(self, batch: MiniBatch) -> UpdateResult:
        """One optimizer step on the PPO clip loss, plus the KL term, of a mini-batch."""
        totals: Counter[str] = Counter()
        for micro in self._micro_batches(batch.experience):
            loss, shares = self._loss(micro.to(self._device), batch)
            self._backward(loss)
            totals.update({name: share.item() for name, share in shares.items()})
        return self._optimizer_step(dict(totals))

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Names and whole weights, one layer at a time."""
        return full_weights(self.model)

    def _loss(self, micro: Experience, batch: MiniBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """This micro-batch's share of the mini-batch's loss, and of its metrics."""
        counts = {"total_tokens": batch.total_tokens, "total_sequences": batch.total_sequences}
        mask, mode = micro.sequences.response_mask, self._algorithm.loss_agg_mode
        assert mode != "seq-mean-token-sum-norm", "not supported yet: refused before the start"
        log_probs, _ = response_log_probs(self.model, micro.sequences, temperature=self._temperature)
        policy = ppo_clip_loss(log_probs, micro.old_log_probs, micro.advantages, clip_ratio=self._algorithm.clip_ratio)
        loss = aggregate(policy.loss, mask, mode, **counts)
        shares = {
            "actor/pg_loss": loss.detach(),
            "actor/pg_clipfrac": masked_sum(policy.clipped, mask) / batch.total_tokens,
            "actor/ppo_kl": masked_sum(policy.kl, mask) / batch.total_tokens,
        }
        if micro.ref_log_probs is not None:
            kl_loss = aggregate(k3(log_probs, micro.ref_log_probs), mask, mode, **counts)
            loss = loss + self._algorithm.kl_loss_coef * kl_loss
            shares["actor/kl_loss"] = kl_loss.detach()
        return loss, shares

    def _backward(self, loss_share: Tensor) -> None:
        # FSDP2 averages gradients over the ranks; the shares of the loss are to be added.
        (loss_share * dist.get_world_size()).backward()  # type: ignore[no-untyped-call]

    def _optimizer_step(self, shares: dict[str, float]) -> UpdateResult:
        norm = clip_grad_norm_(self.model.parameters(), self._training.grad_clip)
        grad_norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        skipped = not math.isfinite(grad_norm)
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        if self._skipped_in_a_row == MAX_SKIPPED:
            raise TrainingError(
                f"The norm of the gradient was {grad_norm} in {MAX_SKIPPED} optimizer steps in a row: the training has "
                "diverged. Lower training.learningRate, or continue from an earlier checkpoint."
            )
        if not skipped:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return UpdateResult(shares, grad_norm, skipped)

    def _adamw(self, learning_rate: float) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self.model.parameters(), lr=learning_rate, weight_decay=self._training.weight_decay, fused=True
        )

    @torch.no_grad()
    def _log_probs(self, model: PreTrainedModel, sequences: Sequences, temperature: float) -> tuple[Tensor, Tensor]:
        parts = [
            response_log_probs(model, micro.to(self._device), temperature=temperature)
            for micro in self._micro_batches(sequences)
        ]
        log_probs, entropy = zip(*parts, strict=True)
        return torch.cat(log_probs).cpu(), torch.cat(entropy).cpu()

    def _micro_batches(self, rows: Rows) -> Iterator[Rows]:
        size = self._training.ppo_micro_batch_size_per_device
        return (rows.rows(slice(start, start + size)) for start in range(0, len(rows), size))
