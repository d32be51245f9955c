"""spec.model: the model to train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, Positive, cel

ModelPath = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""A folder in the pods, a prefix of a bucket or an image with a Hugging Face model, or a name on its hub."""


class SeededModel(ApiModel):
    """A small Qwen3 with random weights from a seed and a byte-level tokenizer, without downloads."""

    model_config = cel(
        (
            "!has(self.hiddenSize) || !has(self.numAttentionHeads) "
            "|| self.hiddenSize % (2 * self.numAttentionHeads) == 0",
            "hiddenSize must be an even multiple of numAttentionHeads",
        ),
        (
            "!has(self.numAttentionHeads) || !has(self.numKeyValueHeads) || "
            "self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numKeyValueHeads must divide numAttentionHeads",
        ),
    )

    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of the weights. The same seed gives the same model."""
    hidden_size: Positive = 128
    """Width of the hidden states."""
    intermediate_size: Positive = 512
    """Width of the feed-forward layers."""
    num_hidden_layers: Positive = 4
    """Number of layers."""
    num_attention_heads: Positive = 4
    """Number of query heads."""
    num_key_value_heads: Positive = 2
    """Number of key and value heads."""


class Lora(ApiModel):
    """Low-rank adapters (arXiv 2106.09685)."""

    rank: Positive
    """Rank of the adapters: verl's lora_rank."""
    alpha: Positive = 16
    """The scale of the adapters is alpha / rank: verl's lora_alpha."""
    use_rslora: bool = False
    """Whether the scale is alpha / sqrt(rank), so that it does not shrink with the rank (rsLoRA, arXiv 2312.03732)."""
    use_dora: bool = False
    """Whether the norm of each output's weights is trained apart from their direction (DoRA, arXiv 2402.09353)."""
    sync_adapters: bool = False
    """Whether vLLM applies the adapters itself, so that a weight sync sends only them. Default: false, vLLM has merged
    weights."""
    target_modules: Annotated[list[Annotated[str, StringConstraints(max_length=253)]], Field(max_length=64)] = [
        "all-linear"
    ]
    """Linear modules with an adapter: all-linear (without the output layer), or names or suffixes of names, such as
    q_proj. Default: all-linear."""


class Model(ApiModel):
    """The model to train. Its source is either path or fromSeed."""

    model_config = cel(("!has(self.path) || !has(self.fromSeed)", "must have exactly one of path and fromSeed"))

    path: ModelPath | None = None
    """A folder in the pods with a Hugging Face model and tokenizer, a prefix of a bucket such as s3://models/Qwen3-8B,
    an image whose file system has the files such as oci://registry.example.com/models/qwen3-8b:v1, or a name on the
    Hugging Face hub. Pods mount an image as a volume, for which the cluster needs Kubernetes' feature ImageVolume."""
    from_seed: SeededModel | None = None
    """A small Qwen3 with random weights from a seed and a byte-level tokenizer, for demonstrations and tests."""
    revision: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """The branch, tag or commit on the Hugging Face hub. Default: the newest."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the computation and of the engine's weights. The weights of the optimizer are always float32.
    Default: float32, on GPUs bfloat16."""
    cast_lm_head_to_fp32: bool = False
    """Whether the output layer computes logits in float32, in trainer and engine, if dtype is bfloat16: TRL's
    cast_lm_head_to_fp32. Its weights stay in bfloat16."""
    trust_remote_code: bool = False
    """Whether the pods may run code from the model's repository."""
    parameters: Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?[MBT]?$", max_length=20)] | None = None
    """Number of parameters, such as 7B, for the memory estimate of the validation. Default: parsed from the name."""
    lora: Lora | None = None
    """Train low-rank adapters instead of all weights. Default: all weights."""
    enable_gradient_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass instead of stored. Default: false, on GPUs true."""
    freeze_vision_tower: bool = False
    """Whether the vision tower of a vision-language model is frozen (data.imageKey): verl's freeze_vision_tower."""
    use_liger: bool = False
    """Whether policy and reference use Liger's kernels for norms, rotary embeddings and feed-forward layers, on NVIDIA
    GPUs: verl's use_liger."""
    use_remove_padding: bool = False
    """Whether sequences are packed without padding. Default: false, on GPUs true."""
