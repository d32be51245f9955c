"""What a user asks for: the spec of an RLTrainingJob.

Words are verl's where verl has one (train_batch_size -> trainBatchSize), and so are the defaults, unless a line says
otherwise (verl 0.9.1, verl/trainer/config).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import AbsolutePath, ApiModel, DnsLabel, Quantity, cel

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Framework(ApiModel):
    """What runs on the job's Ray cluster."""

    model_config = cel(
        (
            "(self.type == 'command') == has(self.command)",
            "command is required for type command, and only there",
        ),
    )

    type: Literal["builtin", "command"] = "builtin"
    """builtin is rlt's own trainer; command runs the command given below on the head, as a Ray job."""
    command: Annotated[list[Annotated[str, StringConstraints(max_length=65536)]], Field(max_length=256)] | None = None
    """The program and its arguments, for type command. It is run without a shell."""


class SeededModel(ApiModel):
    """A small Qwen3 with random weights made from a seed, and a byte-level tokenizer: nothing is downloaded."""

    model_config = cel(
        (
            "self.hiddenSize % self.numAttentionHeads == 0",
            "hiddenSize must be divisible by numAttentionHeads",
        ),
        (
            "self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numKeyValueHeads must divide numAttentionHeads",
        ),
    )

    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """The seed of the weights: the same seed makes the same model."""
    hidden_size: Positive = 128
    """Width of the hidden states. It must be divisible by numAttentionHeads."""
    intermediate_size: Positive = 512
    """Width of the feed-forward layers."""
    num_hidden_layers: Positive = 4
    """Number of layers."""
    num_attention_heads: Positive = 4
    """Number of query heads."""
    num_key_value_heads: Positive = 2
    """Number of key and value heads. It must divide numAttentionHeads."""


class Model(ApiModel):
    """The model to train: exactly one of path and fromSeed."""

    model_config = cel(
        (
            "has(self.path) != has(self.fromSeed)",
            "give exactly one of path and fromSeed",
        ),
    )

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """A folder in the pods with a Hugging Face model and tokenizer, or a name on the Hugging Face hub."""
    from_seed: SeededModel | None = None
    """A model with random weights, made in the job. For demonstrations and tests."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type of the computation and of the engine's weights. The optimizer keeps float32 weights in any case."""


class Data(ApiModel):
    """The prompts to learn on."""

    model_config = cel(
        (
            "self.preset != 'gsm8k' || has(self.path)",
            "preset gsm8k needs path, the folder with train.jsonl and test.jsonl",
        ),
    )

    preset: Literal["arithmetic", "gsm8k"]
    """arithmetic makes additions of two-digit numbers from a seed; gsm8k reads the GSM8K data set at path."""
    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """For gsm8k: the folder in the pods that holds train.jsonl and test.jsonl, as GSM8K is published."""
    max_prompt_length: Positive = 512
    """The longest prompt, in tokens. Longer ones are left out, and counted."""
    max_response_length: Positive = 512
    """The longest response, in tokens. Generation stops there."""
    shuffle: bool = True
    """Whether the prompts are shuffled anew, by the seed, in each epoch."""


class Reward(ApiModel):
    """One rule that scores a response between 0 and 1."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.:-]+$", max_length=253)]
    """exact compares the whole response with the answer; gsm8k compares the number after ####."""
    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """What the score is multiplied by before the rewards are added."""


class Algorithm(ApiModel):
    """How rewards become gradients."""

    adv_estimator: Literal["grpo"] = "grpo"
    """grpo: the reward minus its group's mean, over its group's standard deviation (arXiv 2402.03300)."""
    norm_adv_by_std_in_grpo: bool = True
    """Whether to divide by the group's standard deviation. false is Dr. GRPO (arXiv 2503.20783)."""
    clip_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """PPO's clip: the ratio is kept within 1 - clipRatio and 1 + clipRatio."""
    kl_loss_coef: Annotated[float, Field(ge=0, le=100)] = 0.001
    """Weight of the KL term to the reference model in the loss (k3, called low_var_kl in verl). 0: no reference."""
    loss_agg_mode: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"] = "token-mean"
    """How the losses of tokens become one number. Denominators are global over the mini-batch."""


class Warmup(ApiModel):
    """Supervised steps on the data's own answers before the reinforcement: a stage of its own."""

    steps: Positive
    """Number of optimizer steps."""
    batch_size: Positive = 64
    """Examples in a step, over all workers."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-3
    """AdamW's learning rate in these steps."""


class Training(ApiModel):
    """The optimizer and its batches."""

    model_config = cel(
        (
            "!has(self.ppoMiniBatchSize) || self.trainBatchSize % self.ppoMiniBatchSize == 0",
            "ppoMiniBatchSize must divide trainBatchSize",
        ),
    )

    total_steps: Positive
    """Number of steps. Each one generates, scores and learns from one batch of prompts."""
    train_batch_size: Positive = 128
    """Prompts in a step, over all workers."""
    ppo_mini_batch_size: Positive | None = None
    """Prompts in one optimizer step. It must divide trainBatchSize. Default: trainBatchSize (on-policy)."""
    ppo_micro_batch_size_per_device: Positive = 64
    """Responses in one forward and backward pass of one worker. It changes memory and speed, never the result."""
    ppo_epochs: Positive = 1
    """How often a step's batch is learned from."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 1e-6
    """AdamW's learning rate."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.01
    """AdamW's weight decay."""
    grad_clip: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """The largest norm of the gradient over all parameters; a larger one is scaled down."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of data order, sampling and everything else random: the same seed repeats the run."""
    warmup: Warmup | None = None
    """A supervised warm-up before the reinforcement. Default: none."""


class Rollout(ApiModel):
    """How responses are generated."""

    engine: Literal["vllm", "transformers"] = "vllm"
    """vllm, or a plain sampler of transformers for comparison and small models."""
    n: Annotated[int, Field(ge=2, le=4096, alias="responsesPerPrompt")] = 8
    """Responses to each prompt: the group of GRPO, verl's rollout.n. (To kubectl, which reads YAML 1.1, n is false.)"""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature. Training uses the log-probabilities at this temperature too."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: the smallest set of tokens with this probability."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a GPU's memory for vLLM. On a CPU the KV cache is kvCacheSpace instead."""
    kv_cache_space: Annotated[int, Field(ge=1, le=4096)] = 1
    """GiB of memory for vLLM's KV cache on a CPU (VLLM_CPU_KVCACHE_SPACE)."""
    enforce_eager: bool = True
    """Whether vLLM runs without compilation and CUDA graphs."""


class Resources(ApiModel):
    """What one pod asks for. Requests equal limits, so that nothing is taken away later."""

    cpu: Quantity
    """Processors, such as 4 or 500m."""
    memory: Quantity
    """Memory with /dev/shm in it, such as 64Gi."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, a memory volume that counts as part of memory. Default: a quarter of memory."""


class Accelerator(ApiModel):
    """The accelerators of one pod."""

    resource_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9_.-]+$", max_length=253)]
    """The extended resource that the device plugin advertises, such as nvidia.com/gpu or amd.com/gpu."""
    count: Positive
    """How many of them one pod gets."""


class Toleration(ApiModel):
    """A taint that the pods accept, as in a pod's spec."""

    key: Annotated[str, StringConstraints(max_length=316)] | None = None
    """The taint's key. Default: every key, with operator Exists."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value is compared."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """The taint's value, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect. Default: every effect."""


LabelValue = Annotated[str, StringConstraints(max_length=63)]


class Head(ApiModel):
    """The pod of Ray's head. It runs the driver and no training work."""

    resources: Resources = Resources(cpu="1", memory="4Gi")
    """What the head asks for."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] = {}
    """Labels of the nodes that it may run on."""


class WorkerGroup(ApiModel):
    """Equal pods that train and generate."""

    name: DnsLabel = "workers"
    """The group's name."""
    replicas: Annotated[int, Field(ge=1, le=4096)]
    """Number of pods. They are spread over nodes where possible."""
    resources: Resources
    """What each pod asks for."""
    accelerator: Accelerator | None = None
    """Accelerators of each pod. Default: none, the pod trains on its CPU."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] = {}
    """Labels of the nodes that the pods may run on."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = []
    """Taints that the pods accept."""


class Cluster(ApiModel):
    """The Ray cluster, made by KubeRay for this job alone."""

    image: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    """The image of all pods. It holds Ray and the trainer (or what framework.command runs)."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    ray_version: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$", max_length=32)] = "2.60.0"
    """The version of Ray in the image."""
    head: Head = Head()
    """The head's pod."""
    workers: Annotated[list[WorkerGroup], Field(min_length=1, max_length=1)]
    """The workers: exactly one group for now."""


class Storage(ApiModel):
    """A volume that all pods share: run directories, checkpoints, data sets."""

    claim_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
    """An existing PersistentVolumeClaim in the job's namespace that many nodes can write (ReadWriteMany)."""
    mount_path: AbsolutePath = "/mnt/rlt"
    """Where the pods see it."""


class Checkpoint(ApiModel):
    """Saving and resuming."""

    save_freq: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """Save after every so many steps. -1: only the model, at the end."""
    resume: Literal["auto", "never"] = "auto"
    """auto continues from the job's latest complete checkpoint, after a suspension for instance."""


def _fixed(block: str, *, optional: bool = False) -> tuple[str, str]:
    same = f"self.{block} == oldSelf.{block}"
    if optional:
        same = f"has(self.{block}) == has(oldSelf.{block}) && (!has(self.{block}) || {same})"
    return same, f"{block} is fixed once the job exists: give a new job another name, or delete this one first"


class RLTrainingJobSpec(ApiModel):
    """What to train, and on what. Everything but suspend is fixed once the job exists."""

    model_config = cel(
        (
            "self.framework.type != 'builtin' || (has(self.model) && has(self.data) && has(self.training))",
            "framework builtin needs model, data and training",
        ),
        *(_fixed(block) for block in ("framework", "rewards", "algorithm", "rollout", "cluster", "checkpoint")),
        *(_fixed(block, optional=True) for block in ("model", "data", "training", "storage")),
    )

    suspend: bool = False
    """true releases the cluster and keeps the checkpoints; false again continues from the latest one."""
    framework: Framework = Framework()
    """What runs on the cluster. Default: rlt's own trainer."""
    model: Model | None = None
    """The model to train. Required for the builtin framework."""
    data: Data | None = None
    """The prompts. Required for the builtin framework."""
    rewards: Annotated[list[Reward], Field(max_length=16)] = []
    """The rules that score responses; their weighted sum is the reward. Default: the data preset's own rule."""
    algorithm: Algorithm = Algorithm()
    """How rewards become gradients."""
    training: Training | None = None
    """The optimizer and its batches. Required for the builtin framework."""
    rollout: Rollout = Rollout()
    """How responses are generated."""
    cluster: Cluster
    """The Ray cluster."""
    storage: Storage | None = None
    """A volume that all pods share. Default: the run directory is lost with the cluster."""
    checkpoint: Checkpoint = Checkpoint()
    """Saving and resuming."""
