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
from rlt_trainer.policy.log_probs import response_log_probs, response_top_log_probs
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
        vocabulary: int,
    ) -> None:
        """Load the teacher in the folder `files`. `model`: the policy, which gives dtype, packing and micro-batches.

        temperature: the sampling temperature of the rollout, so that both distributions are compared at the same one.
        vocabulary: number of tokens in the policy's output layer. Layers of the same family differ in unused tokens.
        """
        self._has_top = distillation.loss_mode == "forward_kl_topk"
        top = {"k": distillation.topk, "vocabulary": vocabulary} if self._has_top else {}
        self._options = {
            **top,
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
        forward = response_top_log_probs if self._has_top else response_log_probs
        self.model = load_sharded_model("actor", files, options, forward)
        self._size = MicroBatchSize.of(training, rows, packed=model.use_remove_padding, model=self.model)
        self._offload.offload(self.model)

    def log_probs(self, sequences: Sequences) -> tuple[Tensor, ...]:
        """Log-probabilities of this rank's responses under the teacher: [B, T] on the CPU. For forward_kl_topk: of its
        most likely tokens instead, and these tokens: [B, T, K] each."""

        def forward(part: Sequences) -> tuple[Tensor, ...]:
            # load_sharded_model replaced the model's forward
            values: tuple[Tensor, ...] = self.model(part, **self._options)
            # the K values of all responses may be larger than the memory of the device
            return tuple(each.cpu() for each in values) if self._has_top else values[:1]

        with self._offload.on_device(self.model):
            return evaluate(self.model, sequences, self._size, self._device, forward)
