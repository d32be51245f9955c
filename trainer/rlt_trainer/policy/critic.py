"""The critic: a separate model with a value head and its own optimizer."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from transformers import PreTrainedModel

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.algorithms.aggregation import aggregate
from rlt_trainer.algorithms.losses import value_loss
from rlt_trainer.algorithms.masking import masked_sum
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import UpdateResult
from rlt_trainer.policy.forward import forward_responses
from rlt_trainer.policy.mesh import create_context_group
from rlt_trainer.policy.micro_batches import MicroBatchSize, evaluate
from rlt_trainer.policy.offload import Offload
from rlt_trainer.policy.sharded_model import ModelOptions
from rlt_trainer.policy.trained_model import Share, TrainedModel


class Critic:
    """The value model with its optimizer. All methods are collective."""

    def __init__(
        self,
        files: str,
        *,
        model: Model,
        dtype: torch.dtype,
        mesh: DeviceMesh,
        algorithm: Algorithm,
        training: Training,
        max_response_length: int,
    ) -> None:
        critic = algorithm.critic
        assert critic is not None
        self._algorithm = algorithm
        self._cliprange = critic.cliprange_value
        self._max_response_length = max_response_length
        self._packed = critic.use_remove_padding
        self._group = create_context_group(mesh.device_type, training, mesh.size())
        self._device = torch.device(mesh.device_type)
        self._offload = Offload(self._device, weights=critic.param_offload, optimizer=critic.optimizer_offload)
        rows = critic.ppo_micro_batch_size_per_device or training.ppo_micro_batch_size_per_device
        options = ModelOptions.of(
            model,
            training,
            mesh=mesh,
            dtype=dtype,
            gradient_checkpointing=critic.enable_gradient_checkpointing,
            packed=self._packed,
        )
        self._trained = TrainedModel(
            "critic",
            files,
            options,
            response_values,
            learning_rate=critic.learning_rate,
            learning_rate_field="algorithm.critic.learningRate",
            training=training,
            offload=self._offload,
        )
        self._size = MicroBatchSize.of(training, rows, packed=self._packed, model=self.model)

    @property
    def model(self) -> PreTrainedModel:
        """The sharded model."""
        return self._trained.model

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers of the current stage."""
        return self._trained.optimizers

    def values(self, sequences: Sequences) -> Tensor:
        """Values of the states before each token of this rank's responses: [B, T] on the CPU, 0 at padding."""
        with self._offload.on_device(self.model):
            (values,) = evaluate(self.model, sequences, self._size, self._device, lambda part: (self._values(part),))
        return values

    def on_device(self) -> AbstractContextManager[None]:
        """Hold weights and optimizer state on the device: around the updates of all mini-batches."""
        return self._trained.on_device()

    def update(self, batch: MiniBatch) -> UpdateResult:
        """Take one optimizer step on the clipped value loss of a mini-batch."""
        tokens = max(batch.total_tokens, 1)

        def compute_share(part: Experience) -> Share:
            assert part.values is not None
            assert part.returns is not None
            mask = part.sequences.response_mask
            values = self._values(part.sequences)
            clipped = value_loss(
                values, old_values=part.values, returns=part.returns, mask=mask, cliprange_value=self._cliprange
            )
            loss = aggregate(
                clipped.loss,
                mask,
                self._algorithm.loss_agg_mode,
                total_tokens=batch.total_tokens,
                total_sequences=batch.total_sequences,
                loss_scale_factor=self._max_response_length,
            )
            shares = {"critic/vf_loss": loss.detach(), "critic/vpred_mean": masked_sum(values.detach(), mask) / tokens}
            shares |= {name: masked_sum(value, mask) / tokens for name, value in clipped.metrics.items()}
            return Share(loss, shares)

        return self._trained.train_step(batch.experience, self._size, compute_share)

    def _values(self, sequences: Sequences) -> Tensor:
        # load_sharded_model replaced the model's forward with response_values
        values: Tensor = self.model(sequences, packed=self._packed, group=self._group)
        return values


def response_values(
    model: PreTrainedModel, sequences: Sequences, *, packed: bool = False, group: dist.ProcessGroup | None = None
) -> Tensor:
    """Value of the state before each response token, aligned as in verl: [B, T] in float32, 0 at padding."""
    score = model.get_submodule("score")
    assert isinstance(score, torch.nn.Linear)

    def head(hidden: Tensor, _: Tensor) -> tuple[Tensor, ...]:
        return (functional.linear(hidden.float(), score.weight.float(), score.bias.float()).squeeze(-1),)

    (values,) = forward_responses(model, sequences, head, packed=packed, group=group)
    return values
