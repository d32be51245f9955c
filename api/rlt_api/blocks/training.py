"""spec.training: the optimizer, its batches and the parallelism."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.model import ApiModel, Positive, cel

LearningRate = Annotated[float, Field(gt=0, le=10)]
Betas = Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)]


class Warmup(ApiModel):
    """Supervised steps on the answers of the data before the reinforcement learning."""

    steps: Positive
    """Number of optimizer steps."""
    batch_size: Positive = 64
    """Number of examples in a step, over all workers."""
    learning_rate: LearningRate = 1e-3
    """Learning rate of AdamW in these steps."""


class LearningRateSchedule(ApiModel):
    """Schedule of the learning rate: verl's optim.lr_scheduler_type and related keys."""

    model_config = cel(
        (
            "!has(self.warmupSteps) || !has(self.decaySteps) || self.warmupSteps <= self.decaySteps",
            "warmupSteps must not be above decaySteps",
        ),
        ("!has(self.decaySteps) || self.decaySteps > 0", "decaySteps must be above 0"),
    )

    type: Literal["constant", "cosine", "linear"] = "constant"
    """constant, or the shape of the decay to minRatio times the learning rate."""
    warmup_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Number of initial steps with a linear increase: verl's lr_warmup_steps."""
    decay_steps: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The last step of the decay. Later steps use minRatio. Default: totalSteps."""
    min_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """End of the decay, as a share of the learning rate: verl's min_lr_ratio."""


class Fsdp(ApiModel):
    """Fully sharded data parallel (FSDP2): verl's fsdp_config."""

    fsdp_size: Positive | None = None
    """Number of train workers that share one copy of the weights. The others hold further copies (HSDP). Default:
    all."""
    param_offload: bool = False
    """Offload the weights to CPU memory when idle."""
    optimizer_offload: bool = False
    """Whether the optimizer state is in CPU memory between the updates. It frees memory for the engine of a colocated
    job. During an update the whole state is on the device."""
    reshard_after_forward: bool = True
    """Whether the gathered weights of a layer are released between forward and backward pass, for less memory and more
    communication."""


class Reference(ApiModel):
    """The frozen model of the KL term: verl's actor_rollout_ref.ref."""

    log_prob_micro_batch_size_per_device: Positive | None = None
    """Number of responses in a micro-batch of one device. Default: training.ppoMicroBatchSizePerDevice."""
    fsdp_size: Positive | None = None
    """Number of train workers that share one copy of the weights."""
    param_offload: bool = False
    """Whether the weights are in CPU memory between their uses. Default: false, on GPUs true."""


class Training(ApiModel):
    """The optimizer, its batches and the parallelism."""

    model_config = cel(
        (
            "!has(self.ppoMiniBatchSize) || !has(self.trainBatchSize) "
            "|| self.trainBatchSize % self.ppoMiniBatchSize == 0",
            "ppoMiniBatchSize must divide trainBatchSize",
        ),
        ("!has(self.totalSteps) || !has(self.totalEpochs)", "totalSteps and totalEpochs cannot be combined"),
        (
            "!has(self.reference) || !has(self.reference.fsdpSize) || !has(self.fsdp) || !has(self.fsdp.fsdpSize) "
            "|| self.reference.fsdpSize == self.fsdp.fsdpSize",
            "reference.fsdpSize must be equal to fsdp.fsdpSize",
        ),
    )

    total_steps: Positive | None = None
    """Number of steps. Each step generates and scores responses to one batch of prompts and trains on them."""
    total_epochs: Positive | None = None
    """Number of passes over the data, instead of totalSteps."""
    train_batch_size: Positive = 128
    """Number of prompts in a step, over all workers."""
    ppo_mini_batch_size: Positive | None = None
    """Number of prompts in one optimizer step. Default: trainBatchSize (on-policy)."""
    ppo_micro_batch_size_per_device: Positive = 64
    """Number of responses in one forward and backward pass of one device. It affects memory and speed, not the
    result."""
    log_prob_micro_batch_size_per_device: Positive | None = None
    """Number of responses in one forward pass for log-probabilities. Default: ppoMicroBatchSizePerDevice."""
    use_dynamic_bsz: bool = False
    """Whether micro-batches are filled by tokens (ppoMaxTokenLenPerDevice) instead of responses. Default: false; with
    framework.type builtin on GPUs true, unless a field that ends with MicroBatchSizePerDevice is given."""
    ppo_max_token_len_per_device: Positive | None = None
    """Maximum number of tokens in a micro-batch of one device, including prompts, for useDynamicBsz. Default: none;
    with framework.type builtin on GPUs 16384, or the maximum length of a prompt with its response, or of a pair,
    divided by contextParallelSize, if that is more."""
    ppo_epochs: Positive = 1
    """Number of passes over the batch of a step."""
    optimizer: Literal["adamw", "adamw_8bit", "muon"] = "adamw"
    """The optimizer of policy and critic. adamw_8bit is AdamW with moments of 8 bits (arXiv 2110.02861). muon updates
    the matrices of the layers, with the learning rate and weight decay of AdamW (arXiv 2502.16982), and AdamW the other
    weights."""
    learning_rate: LearningRate = 1e-6
    """Learning rate of the optimizer."""
    lr_schedule: LearningRateSchedule | None = None
    """Schedule of the policy's learning rate. Default: constant."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.01
    """Weight decay of the optimizer."""
    betas: Betas = [0.9, 0.999]
    """Decay rates of AdamW's averages of the gradient and of its square, also for the critic: verl's optim.betas."""
    grad_clip: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """Maximum norm of the gradient over all parameters. A larger gradient is scaled down."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of data order, sampling and all other random choices. The same seed repeats the run if the kernels are
    deterministic and generation is not asynchronous."""
    warmup: Warmup | None = None
    """Supervised steps before the reinforcement learning. Default: none."""
    strategy: Literal["fsdp2"] = "fsdp2"
    """How the model is sharded."""
    fsdp: Fsdp | None = None
    """Options of fsdp2."""
    reference: Reference | None = None
    """The frozen model of the KL term."""
    context_parallel_size: Positive = 1
    """Number of train workers that share each sequence: verl's ulysses_sequence_parallel_size. It requires
    model.useRemovePadding."""
    expert_parallel_size: Positive = 1
    """Number of train workers that split the experts of the policy: Megatron's expert_model_parallel_size. They
    exchange tokens, and gather a part of the experts instead of all. For Qwen3-MoE, Qwen3-Next, Qwen3.5-MoE,
    DeepSeek-V3 and GLM-4.5."""
    collective_timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Maximum time of the train workers' collectives, in seconds, until the attempt fails. The default is the same as
    PyTorch's for NCCL and verl's nccl_timeout. A rank can be late by up to this time, such as
    one that compiles kernels."""
    use_torch_compile: bool = False
    """Whether torch.compile compiles the layers of the models, except for layers with experts, and the softmax of
    policy and reference. Default: false; with framework.type builtin on GPUs true, unless model.useLiger
    or data.imageKey is given."""
