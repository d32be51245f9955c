"""The teacher of a distillation: a frozen, sharded model that scores the policy's responses. Collective."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from rlt_api.blocks.algorithm import Distillation
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Training
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.mesh import create_context_group
from rlt_trainer.policy.micro_batches import MicroBatchSize, evaluate
from rlt_trainer.policy.offload import Offload
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model


class Teacher:
    """The model of algorithm.distillation on this rank."""

    def __init__(
        self,
        files: str,
        *,
        distillation: Distillation,
        model: Model,
        dtype: torch.dtype,
        mesh: DeviceMesh,
        training: Training,
        temperature: float,
    ) -> None:
        """Load the teacher in the folder `files`. `model`: the policy, which gives dtype, packing and micro-batches.

        temperature: the sampling temperature of the rollout, so that both distributions are compared at the same one.
        """
        self._options = {
            "temperature": temperature,
            "packed": model.use_remove_padding,
            "group": create_context_group(mesh.device_type, training, mesh.size()),
            "float32_head": model.cast_lm_head_to_fp32,
        }
        self._device = torch.device(mesh.device_type)
        self._offload = Offload(self._device, weights=distillation.param_offload)
        rows = training.log_prob_micro_batch_size_per_device or training.ppo_micro_batch_size_per_device
        options = ModelOptions.of(
            model, training, mesh=mesh, dtype=dtype, gradient_checkpointing=False, packed=model.use_remove_padding
        )
        options = replace(options, frozen=True, liger=False)  # it may be of another family
        self.model = load_sharded_model("actor", files, options, response_log_probs)
        self._size = MicroBatchSize.of(training, rows, packed=model.use_remove_padding, model=self.model)
        self._offload.offload(self.model)

    def log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities of this rank's responses under the teacher: [B, T] on the CPU."""

        def forward(part: Sequences) -> tuple[Tensor, ...]:
            # load_sharded_model replaced the model's forward with response_log_probs
            log_probs, _ = self.model(part, **self._options)
            return (log_probs,)

        with self._offload.on_device(self.model):
            (log_probs,) = evaluate(self.model, sequences, self._size, self._device, forward)
        return log_probs
