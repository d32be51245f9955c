"""spec.training: the optimizer, its batches, and how the model is cut up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.model import ApiModel, Positive, cel

LearningRate = Annotated[float, Field(gt=0, le=10)]


class Warmup(ApiModel):
    """Supervised steps on the data's own answers before the reinforcement: a stage of its own."""

    steps: Positive
    """Number of optimizer steps."""
    batch_size: Positive = 64
    """Examples in a step, over all workers."""
    learning_rate: LearningRate = 1e-3
    """AdamW's learning rate in these steps."""


class LearningRateSchedule(ApiModel):
    """How the learning rate changes: verl's optim.lr_scheduler_type and friends."""

    model_config = cel(
        (
            "!has(self.warmupSteps) || !has(self.decaySteps) || self.warmupSteps <= self.decaySteps",
            "warmupSteps must not be above decaySteps: nothing is left to decay in",
        ),
        ("!has(self.decaySteps) || self.decaySteps > 0", "decaySteps must be above 0"),
    )

    type: Literal["constant", "cosine", "linear"] = "constant"
    """constant, or a decay to minRatio times the learning rate."""
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Steps of linear increase at the start: verl's lr_warmup_steps."""
    decay_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The last step of the decay; those after it have minRatio. Default: totalSteps."""
    min_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Where the decay ends, as a share of the learning rate: verl's min_lr_ratio."""


class Fsdp(ApiModel):
    """Fully sharded data parallel (FSDP2): verl's fsdp_config."""

    fsdp_size: Positive | None = None
    """Ranks that share one copy of the weights; the others hold further copies (HSDP). Default: all."""
    param_offload: bool = False
    """Whether weights wait in the CPU's memory while they are not needed."""
    optimizer_offload: bool = False
    """Whether the optimizer's state waits in the CPU's memory while it is not needed."""
    reshard_after_forward: bool = True
    """Whether a layer's gathered weights are given back between forward and backward: less memory, more traffic."""


class Reference(ApiModel):
    """The frozen model of the KL term: verl's actor_rollout_ref.ref."""

    log_prob_micro_batch_size_per_device: Positive | None = None
    """Responses in one pass of one device. Default: training.ppoMicroBatchSizePerDevice."""
    fsdp_size: Positive | None = None
    """Ranks that share one copy. It must be the training's."""
    param_offload: bool = False
    """Whether its weights wait in the CPU's memory."""


class Validation(ApiModel):
    """When the validation set is scored."""

    test_freq: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Every so many steps, and after the last: verl's trainer.test_freq. -1: never."""
    before_train: bool = False
    """Also before the first step: verl's trainer.val_before_train."""


class Training(ApiModel):
    """The optimizer and its batches."""

    model_config = cel(
        (
            "!has(self.ppoMiniBatchSize) || !has(self.trainBatchSize) "
            "|| self.trainBatchSize % self.ppoMiniBatchSize == 0",
            "ppoMiniBatchSize must divide trainBatchSize",
        ),
        ("!has(self.totalSteps) || !has(self.totalEpochs)", "give totalSteps or totalEpochs, not both"),
        (
            "!has(self.reference) || !has(self.reference.fsdpSize) || !has(self.fsdp) || !has(self.fsdp.fsdpSize) "
            "|| self.reference.fsdpSize == self.fsdp.fsdpSize",
            "reference.fsdpSize must be fsdp.fsdpSize",
        ),
    )

    total_steps: Positive | None = None
    """Number of steps. Each one generates, scores and learns from one batch of prompts."""
    total_epochs: Positive | None = None
    """Passes over the data instead of a number of steps."""
    train_batch_size: Positive = 128
    """Prompts in a step, over all workers."""
    ppo_mini_batch_size: Positive | None = None
    """Prompts in one optimizer step. It must divide trainBatchSize. Default: trainBatchSize (on-policy)."""
    ppo_micro_batch_size_per_device: Positive = 64
    """Responses in one forward and backward pass of one device. It changes memory and speed, never the result."""
    log_prob_micro_batch_size_per_device: Positive | None = None
    """The same where only log-probabilities are computed. Default: ppoMicroBatchSizePerDevice."""
    use_dynamic_bsz: bool = False
    """Whether passes are filled by tokens (ppoMaxTokenLenPerDevice) instead of by responses."""
    ppo_max_token_len_per_device: Positive | None = None
    """For useDynamicBsz: the most tokens in one pass of one device, prompts included."""
    ppo_epochs: Positive = 1
    """How often a step's batch is learned from."""
    learning_rate: LearningRate = 1e-6
    """AdamW's learning rate."""
    lr_schedule: LearningRateSchedule | None = None
    """How the policy's learning rate changes. Default: it is constant."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.01
    """AdamW's weight decay."""
    grad_clip: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """The largest norm of the gradient over all parameters; a larger one is scaled down."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of data order, sampling and everything else random. The same seed repeats the run, where kernels do and
    generation does not run ahead."""
    warmup: Warmup | None = None
    """A supervised warm-up before the reinforcement. Default: none."""
    strategy: Literal["fsdp2"] = "fsdp2"
    """How the model is cut up."""
    fsdp: Fsdp | None = None
    """Options of fsdp2."""
    reference: Reference | None = None
    """The frozen model of the KL term."""
    context_parallel_size: Positive = 1
    """Ranks that share each sequence: verl's ulysses_sequence_parallel_size. It needs model.useRemovePadding."""
    use_torch_compile: bool = False
    """Whether torch.compile compiles the models' layers. (verl: true.)"""
    validation: Validation | None = None
    """When the validation set (data.valFiles, data.hub.valSplit or the preset's own) is scored, by one greedy response
    to each prompt. Default: never."""
