"""The actor: the policy on this rank. Log-probabilities, supervised steps and PPO updates with FSDP2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.model import Model
from rlt_api.blocks.training import Fsdp, Reference, Training
from rlt_trainer.algorithms.masking import masked_sum, row_sums
from rlt_trainer.algorithms.preferences import dpo_loss
from rlt_trainer.batches.pairs import Pairs
from rlt_trainer.batches.sequences import Experience, MiniBatch, Sequences
from rlt_trainer.batches.update_result import OwnPass, UpdateResult
from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.policy.expert_load import ExpertLoad, describe_balance, find_trained_tokens
from rlt_trainer.policy.log_probs import response_log_probs
from rlt_trainer.policy.lora import disable_adapters, gather_adapters
from rlt_trainer.policy.mesh import create_context_group, create_expert_mesh
from rlt_trainer.policy.micro_batches import MicroBatchSize, RowValues, evaluate
from rlt_trainer.policy.model import gather_weights, iterate_buffers
from rlt_trainer.policy.offload import Offload
from rlt_trainer.policy.policy_objective import PolicyObjective
from rlt_trainer.policy.router_bias import RouterBias
from rlt_trainer.policy.router_loss import RouterLoss
from rlt_trainer.policy.router_replay import RouterReplay, lay_out_routes, restore_routes
from rlt_trainer.policy.schedule import learning_rate_factor
from rlt_trainer.policy.sharded_model import ModelOptions, load_sharded_model
from rlt_trainer.policy.sharding import local_shards
from rlt_trainer.policy.trained_model import Share, TrainedModel


class Actor:
    """The policy with its optimizer and, for a KL term or DPO, the frozen reference. All methods are collective."""

    def __init__(
        self,
        files: str,
        *,
        model: Model,
        dtype: torch.dtype,
        mesh: DeviceMesh,
        algorithm: Algorithm,
        training: Training,
        temperature: float,
        max_response_length: int,
        processor: ImageProcessor | None = None,
    ) -> None:
        """Load the model in the folder `files`.

        temperature: the sampling temperature of the rollout, applied to all log-probabilities of an update.
        max_response_length: the divisor of seq-mean-token-sum-norm, in tokens.
        processor: for prompts with images (data.imageKey).
        """
        fsdp = training.fsdp or Fsdp()
        reference = training.reference or Reference()
        self._training = training
        self._processor = processor
        self._temperature = temperature
        self._dpo = algorithm.dpo
        self._objective = PolicyObjective(algorithm, max_response_length=max_response_length)
        self._dtype = dtype
        self._packed = model.use_remove_padding
        self._head = {"float32_head": model.cast_lm_head_to_fp32, "compiled_head": training.use_torch_compile}
        self._group = create_context_group(mesh.device_type, training, mesh.size())
        self._device = torch.device(mesh.device_type)
        self._offload = Offload(self._device, weights=fsdp.param_offload, optimizer=fsdp.optimizer_offload)

        options = _build_options(model, training, mesh, dtype)
        self._trained = TrainedModel(
            "actor",
            files,
            options,
            response_log_probs,
            learning_rate=training.learning_rate,
            learning_rate_field="training.learningRate",
            training=training,
            offload=self._offload,
        )
        sizes = _find_micro_batch_sizes(training, packed=self._packed, model=self.model)
        self._update_size, self._log_prob_size, self._ref_size = sizes
        self._router_coef = algorithm.router_aux_loss_coef
        self._router_loss = RouterLoss(self._trained.model) if self._router_coef > 0 else None
        self._load = ExpertLoad(self._trained.model)
        rate = algorithm.router_bias_update_rate
        self._router_bias = RouterBias(self._trained.model, rate) if rate > 0 else None
        self._replay = None if algorithm.router_replay == "disabled" else RouterReplay(self._trained.model)
        self.has_reference = _has_reference(algorithm)
        self.reference: PreTrainedModel | None = None
        """The frozen reference. None if there is none, and if it is the policy without its adapters."""
        self._ref_offload = Offload(self._device, weights=reference.param_offload)
        if self.has_reference and (model.lora is None or training.warmup is not None):
            frozen = replace(options, frozen=True)
            self.reference = load_sharded_model("actor", files, frozen, response_log_probs)
            self._ref_offload.offload(self.reference)

    @property
    def model(self) -> PreTrainedModel:
        """The sharded model."""
        return self._trained.model

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers of the current stage."""
        return self._trained.optimizers

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next optimizer step."""
        return self._trained.learning_rate

    def start_stage(self, learning_rate: float) -> None:
        """Start a stage: reset the optimizer, and copy the current policy to the reference."""
        self._trained.reset_optimizer(learning_rate)
        if self.reference is not None:
            with torch.no_grad():
                for frozen, current in zip(local_shards(self.reference), local_shards(self.model), strict=True):
                    frozen.copy_(current)

    def set_step(self, step: int) -> None:
        """Set the learning rate of training step `step` (from 1), which depends only on the step and the config."""
        schedule = self._training.lr_schedule
        total = self._training.total_steps
        if schedule is None:
            self._trained.scale_learning_rate(1.0)
        else:
            assert total is not None, "the loop resolves totalEpochs"
            self._trained.scale_learning_rate(learning_rate_factor(schedule, step, total))

    def log_probs(self, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of this rank's responses under the policy: [B, T] on the CPU."""
        return self._evaluate(self.model, self._offload, sequences, self._log_prob_size, self._temperature)

    def record_log_probs(self, sequences: Sequences) -> tuple[Tensor, Tensor, Tensor]:
        """As log_probs, and the routes of all tokens: [B, P + T, L, k] on the CPU."""
        replay = self._replay
        assert replay is not None

        def forward(part: Sequences) -> tuple[Tensor, Tensor, Tensor]:
            values, routes = replay.record(lambda: self._response_log_probs(self.model, part, self._temperature))
            return *values, restore_routes(routes, part, packed=self._packed, group=self._group)

        with self._offload.on_device(self.model):
            log_probs, entropy, routes = evaluate(self.model, sequences, self._log_prob_size, self._device, forward)
        return log_probs, entropy, routes

    def ref_log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities of this rank's responses under the reference, whose routers choose: [B, T] on the CPU."""
        assert self.has_reference, "the reference needs klLossCoef > 0, klInReward or dpo"
        if self.reference is not None:
            return self._evaluate(self.reference, self._ref_offload, sequences, self._ref_size, self._temperature)[0]
        with disable_adapters(self.model):
            return self._evaluate(self.model, self._offload, sequences, self._ref_size, self._temperature)[0]

    def probe_log_probs(self, sequences: Sequences) -> Tensor:
        """Log-probabilities at temperature 1, to compare with the rollout engine's: [B, T] on the CPU."""
        return self._evaluate(self.model, self._offload, sequences, self._log_prob_size, 1.0)[0]

    def supervised_step(self, sequences: Sequences, total_tokens: int) -> UpdateResult:
        """Take one optimizer step on the mean negative log-likelihood over the `total_tokens` of all ranks."""

        def compute_share(part: Sequences) -> Share:
            log_probs, _ = self._response_log_probs(self.model, part, 1.0)
            loss = masked_sum(-log_probs, part.response_mask) / total_tokens
            return Share(loss, {"warmup/loss": loss.detach()})

        return self._trained.train_step(sequences, self._update_size, compute_share)

    def preference_step(self, pairs: Pairs, total_pairs: int) -> UpdateResult:
        """Take one optimizer step on the mean DPO loss over the `total_pairs` of all ranks."""
        assert self._dpo is not None
        beta = self._dpo.beta

        def compute_share(part: Pairs) -> Share:
            sequences = part.sequences()
            log_probs, _ = self._response_log_probs(self.model, sequences, self._temperature)
            chosen, rejected = row_sums(log_probs, sequences.response_mask).chunk(2)
            preferences = dpo_loss(chosen, rejected, part.ref_chosen, part.ref_rejected, beta=beta)
            mask = part.chosen.response_mask.any(-1)  # False for a copy that fills a micro-batch
            shares = {name: masked_sum(each, mask) / total_pairs for name, each in preferences.metrics().items()}
            return Share(masked_sum(preferences.loss, mask) / total_pairs, shares)

        rows = max(1, self._update_size.rows // 2)  # a pair is two responses
        return self._trained.train_step(pairs, replace(self._update_size, rows=rows), compute_share)

    def on_device(self) -> AbstractContextManager[None]:
        """Hold weights and optimizer state on the device: around the updates of all mini-batches."""
        return self._trained.on_device()

    def weights_on_device(self) -> AbstractContextManager[None]:
        """Hold the weights on the device, for collectives over them."""
        return self._offload.on_device(self.model)

    def update(self, batch: MiniBatch) -> UpdateResult:
        """Take one optimizer step on the policy loss of a mini-batch, and then move the biases of the routers."""
        own_pass = batch.experience.own_pass
        values = RowValues() if own_pass is not None and bool(own_pass.any()) else None

        def compute_share(part: Experience) -> Share:
            with self._count_experts(part.sequences), self._record_routers():
                log_probs, entropy = self._response_log_probs(
                    self.model, part.sequences, self._temperature, ids=part.teacher_ids
                )
            top_log_probs = None
            if part.teacher_ids is not None:
                top_log_probs = log_probs[..., 1:]
                log_probs = log_probs[..., 0].clone()  # a view would keep the K others in memory
            loss, shares = self._objective.compute_share(
                log_probs,
                entropy,
                part,
                total_tokens=batch.total_tokens,
                total_sequences=batch.total_sequences,
                top_log_probs=top_log_probs,
            )
            if self._router_loss is not None:
                balance = self._router_loss.compute(part.sequences, packed=self._packed) / batch.total_sequences
                loss = loss + self._router_coef * balance
                shares["actor/router_aux_loss"] = balance.detach()
            return Share(loss, shares, (log_probs, entropy))

        result = self._trained.train_step(batch.experience, self._update_size, compute_share, values=values)
        if values is not None:
            result = replace(result, own_pass=_build_own_pass(batch, values))
        counts = self._load.reduce()
        if not counts:
            return result
        if self._router_bias is not None and not result.skipped:
            self._router_bias.update(counts)
        balance = describe_balance(torch.stack(list(counts.values())))
        shares = {name: value / dist.get_world_size() for name, value in balance.items()}  # the same on all ranks
        return replace(result, shares=result.shares | shares)

    def gather_weights(self, *, merged: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield names and full weights, one layer at a time, and the buffers in the model's files.

        Not `merged`: without the adapters.
        """
        with self.weights_on_device():
            yield from gather_weights(self.model, merged=merged)
            yield from iterate_buffers(self.model)

    def gather_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and full weights of the adapters, as an engine applies them."""
        with self.weights_on_device():
            yield from gather_adapters(self.model, self._dtype)

    def _evaluate(
        self, model: PreTrainedModel, offload: Offload, sequences: Sequences, size: MicroBatchSize, temperature: float
    ) -> tuple[Tensor, Tensor]:
        with offload.on_device(model):
            log_probs, entropy = evaluate(
                model, sequences, size, self._device, lambda part: self._response_log_probs(model, part, temperature)
            )
        return log_probs, entropy

    def _record_routers(self) -> AbstractContextManager[None]:
        return nullcontext() if self._router_loss is None else self._router_loss.record()

    def _count_experts(self, sequences: Sequences) -> AbstractContextManager[None]:
        return self._load.count(find_trained_tokens(sequences, packed=self._packed, group=self._group))

    def _response_log_probs(
        self, model: PreTrainedModel, sequences: Sequences, temperature: float, *, ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        # load_sharded_model replaced the model's forward with response_log_probs
        options: dict[str, Any] = {"packed": self._packed, "group": self._group, **self._head}
        if sequences.images is not None:
            assert self._processor is not None
            options["images"] = self._processor.process(sequences.images.flatten()).to(self._device)
        if self._replay is not None:
            self._replay.force(lay_out_routes(sequences, packed=self._packed, group=self._group))
        log_probs, entropy = model(sequences, temperature=temperature, ids=ids, **options)
        return log_probs, entropy


def _build_options(model: Model, training: Training, mesh: DeviceMesh, dtype: torch.dtype) -> ModelOptions:
    """Build the options of the trained policy. Collective: creates the mesh of the ranks that split experts."""
    return ModelOptions.of(
        model,
        training,
        mesh=mesh,
        expert_mesh=create_expert_mesh(mesh.device_type, training, mesh.size()),
        dtype=dtype,
        lora=model.lora,
        gradient_checkpointing=model.enable_gradient_checkpointing,
        packed=model.use_remove_padding,
    )


def _has_reference(algorithm: Algorithm) -> bool:
    has_kl_term = algorithm.kl_loss_coef > 0 or algorithm.kl_in_reward is not None
    return has_kl_term or algorithm.dpo is not None


def _build_own_pass(batch: MiniBatch, values: RowValues) -> OwnPass:
    """Return the values without padding, and without the rows that fill the mini-batch."""
    assert batch.row_numbers is not None
    is_row = torch.tensor(batch.row_numbers) >= 0
    sequences = batch.experience.sequences.rows(is_row)
    log_probs, entropy = (sequences.flatten(each[is_row]) for each in values.read())
    return OwnPass(tuple(number for number in batch.row_numbers if number >= 0), log_probs, entropy)


def _find_micro_batch_sizes(
    training: Training, *, packed: bool, model: PreTrainedModel
) -> tuple[MicroBatchSize, MicroBatchSize, MicroBatchSize]:
    """Return the sizes of updates, of log-probabilities under the policy, and of those under the reference."""
    reference = training.reference or Reference()
    rows = training.ppo_micro_batch_size_per_device
    log_prob_rows = training.log_prob_micro_batch_size_per_device or rows
    ref_rows = reference.log_prob_micro_batch_size_per_device or rows
    update, log_prob, reference_size = (
        MicroBatchSize.of(training, each, packed=packed, model=model) for each in (rows, log_prob_rows, ref_rows)
    )
    return update, log_prob, reference_size
