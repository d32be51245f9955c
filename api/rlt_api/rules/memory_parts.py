"""What one train worker keeps on its device and in CPU memory, and what an update needs in addition.

Bytes per parameter: float32 weights (4), gradients (4) and AdamW's two moments (8; 2 with 8 bits; 4 for Muon's) of the
policy and of a critic, and in model.dtype the weights of the reference, with a KL term, and of a teacher whose name has
its size, all sharded over the train workers that share a copy (FSDP2, arXiv 1910.02054). With LoRA, the frozen weights
are in model.dtype; adapters are not counted. Activations are counted on accelerators, for models whose dimensions are
known (activations.py). All parameters of a mixture of experts are in memory, and a token has only its experts'
activations; FSDP2 gathers all experts of a layer, or with expertParallelSize a part of them. Exchanged tokens are not
counted.

Offloaded weights and moments are on the device during the update, and the weights during the weight sync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlt_api.blocks.model import Model
from rlt_api.rules.activations import activation_bytes, output_bytes
from rlt_api.rules.layout import count_train_workers, data_parallel_size
from rlt_api.rules.model_shape import model_shape
from rlt_api.rules.model_size import BYTES, Size, model_size
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import count_responses, has_engines, training_group

GIB = 2**30
MOMENTS_OF_A_SCALE = 128
"""Number of 8-bit moments with one float32 scale (BLOCK in rlt_trainer/policy/eight_bit.py)."""

TOP_TOKEN_BYTES = 44
"""Bytes on the device for each of a token's most likely tokens in forward_kl_topk, at the peak of its loss: number and
value, number as index, the policy's log-probability in both layouts, and the intermediate results of the loss."""

ACTIVATIONS = "activations"
"""The first word of the activations' label."""

Phase = Literal["update", "sync"]
"""The update of policy or critic, and the sync of the policy's weights to the engine."""


@dataclass(frozen=True)
class Part:
    """A term of the sum."""

    label: str
    bytes: float

    def __str__(self) -> str:
        return f"{self.bytes / GIB:.3g} GiB {self.label}"


@dataclass(frozen=True)
class State:
    """Tensors that a train worker keeps between the phases of a step."""

    part: Part
    offloaded: bool
    """Whether they are in CPU memory while they are not used."""
    phases: frozenset[Phase] = frozenset()
    """The phases that use them on the device."""


def list_states(spec: RLTrainingJobSpec, model: Model, size: Size) -> list[State]:
    """List what one train worker keeps: weights, moments, reference and critic."""
    fsdp = spec.training.fsdp
    reference = spec.training.reference
    critic = spec.algorithm.critic
    share = size.parameters / _shards(spec)
    precision = BYTES[model.dtype]
    params, optimizer = (fsdp.param_offload, fsdp.optimizer_offload) if fsdp else (False, False)
    both: frozenset[Phase] = frozenset(("update", "sync"))
    if model.lora:
        states = [State(Part(f"frozen {model.dtype} weights", precision * share), params, both)]
    else:
        states = [
            State(Part("float32 weights", 4 * share), params, both),
            State(_list_moments(spec, model, size), optimizer, frozenset(("update",))),
        ]
    if has_reference(spec):
        part = Part(f"{model.dtype} reference weights", precision * share)
        states.append(State(part, bool(reference and reference.param_offload)))
    if distillation := spec.algorithm.distillation:
        teacher = model_size(Model(path=distillation.model_path))
        if teacher is not None:
            part = Part(f"{model.dtype} weights of the teacher", precision * teacher.parameters / _shards(spec))
            states.append(State(part, distillation.param_offload))
    if critic is not None:
        states.append(State(Part("float32 weights of the critic", 4 * share), critic.param_offload))
        moments = _list_moments(spec, model, size)
        states.append(State(Part(f"{moments.label} of the critic", moments.bytes), critic.optimizer_offload))
    return states


def _list_moments(spec: RLTrainingJobSpec, model: Model, size: Size) -> Part:
    """AdamW has two moments of each parameter, in float32, or of one byte and a share of a float32 scale. Muon has one
    of the layers' matrices, of all if the shape is unknown."""
    if spec.training.optimizer == "adamw":
        return Part("AdamW's float32 moments", 8 * size.parameters / _shards(spec))
    if spec.training.optimizer == "adamw_8bit":
        bytes_of_two = 2 * (1 + 4 / MOMENTS_OF_A_SCALE)
        return Part("AdamW's 8-bit moments", bytes_of_two * size.parameters / _shards(spec))
    shape = model_shape(model)
    in_layers = min(shape.layers * shape.layer_parameters, size.parameters) if shape else size.parameters
    return Part("float32 moments of Muon and AdamW", (8 * size.parameters - 4 * in_layers) / _shards(spec))


def has_reference(spec: RLTrainingJobSpec) -> bool:
    """Whether a copy of the weights is kept for a KL term or DPO. Without its adapters, a policy is its own."""
    algorithm = spec.algorithm
    has_term = algorithm.kl_loss_coef > 0 or algorithm.kl_in_reward is not None or algorithm.dpo is not None
    return has_term and (spec.training.warmup is not None or not (spec.model and spec.model.lora))


def count_top_tokens(spec: RLTrainingJobSpec) -> int:
    """Return distillation.topk, the tokens of the teacher's distribution in forward_kl_topk; 0 for another loss."""
    distillation = spec.algorithm.distillation
    return distillation.topk if distillation and distillation.loss_mode == "forward_kl_topk" else 0


def count_longest_tokens(spec: RLTrainingJobSpec) -> int:
    """Return the tokens of one device for the longest prompt with its response, or for the longest pair, which is in
    one micro-batch. spec.data must be given."""
    assert spec.data
    longest = (spec.data.max_prompt_length + spec.data.max_response_length) * (1 if has_engines(spec) else 2)
    return -(-longest // spec.training.context_parallel_size)


def count_micro_batch_tokens(spec: RLTrainingJobSpec, *, all_longest: bool = False) -> int | None:
    """Return the number of tokens in one device's micro-batch that a run reaches; None if the lengths are unknown.

    Padded rows are as wide as the longest prompt and the longest response, and useDynamicBsz fills micro-batches up to
    ppoMaxTokenLenPerDevice. Another packed micro-batch has at least one sequence of maximum length; how many others
    have it depends on the responses. all_longest: the tokens if all of them have it.
    """
    training = spec.training
    if spec.data is None or spec.model is None:
        return None
    unit = 1 if has_engines(spec) else 2  # a pair is in one micro-batch
    responses = (training.ppo_mini_batch_size or training.train_batch_size) * count_responses(spec)
    units = max(1, responses // data_parallel_size(spec) // unit)
    longest = count_longest_tokens(spec)
    if training.use_dynamic_bsz and training.ppo_max_token_len_per_device:
        return min(max(longest, training.ppo_max_token_len_per_device), units * longest)
    if spec.model.use_remove_padding and not all_longest:
        return longest
    return max(1, min(training.ppo_micro_batch_size_per_device // unit, units)) * longest


def engine_weight_bytes(spec: RLTrainingJobSpec, model: Model, size: Size) -> float:
    """Return the size of the engine's weights in model.dtype, or with rollout.quantization one byte for each weight of
    the linear layers. Experts, embeddings and output layer stay in model.dtype; all weights are counted as quantized if
    the shape is unknown. Scales are not counted."""
    if spec.rollout.quantization is None:
        return BYTES[model.dtype] * size.parameters
    shape = model_shape(model)
    linear = size.parameters
    if shape:
        experts = shape.expert_parameters if shape.experts > 1 else 0
        linear = min(linear, shape.layers * (shape.layer_parameters - experts))
    return linear + BYTES[model.dtype] * (size.parameters - linear)


def engine_dtype(spec: RLTrainingJobSpec, model: Model) -> str:
    """Return the data type of the engine's weights, for messages."""
    return f"{spec.rollout.quantization} and {model.dtype}" if spec.rollout.quantization else model.dtype


def list_gradients(spec: RLTrainingJobSpec, model: Model, size: Size) -> list[Part]:
    """List the gradients of one train worker during an update."""
    return [] if model.lora else [Part("float32 gradients", 4 * size.parameters / _shards(spec))]


def list_activations(spec: RLTrainingJobSpec, model: Model, *, all_longest: bool = False) -> list[Part]:
    """List what the forward and backward pass of a micro-batch needs on an accelerator. Empty if it is unknown."""
    shape = model_shape(model)
    tokens = count_micro_batch_tokens(spec, all_longest=all_longest)
    if shape is None or tokens is None:
        return []
    itemsize = BYTES[model.dtype]
    packed = model.use_remove_padding
    checkpointing = model.enable_gradient_checkpointing
    saved = activation_bytes(shape, tokens, itemsize, packed=packed, checkpointing=checkpointing, liger=model.use_liger)
    output = output_bytes(shape, tokens, itemsize, on_gpu=True)
    parts = [Part(f"{ACTIVATIONS} of {tokens} tokens", saved), Part("logits and embeddings", output)]
    if topk := count_top_tokens(spec):
        label = f"log-probabilities of {topk} tokens of the teacher"
        parts.append(Part(label, TOP_TOKEN_BYTES * tokens * topk))
    if shape.experts > 1:
        copies = 1 if model.lora else 2  # FSDP2 gathers the weights of a layer, and keeps its gradients until the end
        gathered = shape.expert_parameters / spec.training.expert_parallel_size
        parts.append(Part("gathered experts of a layer", copies * itemsize * gathered))
    return parts


def _shards(spec: RLTrainingJobSpec) -> int:
    fsdp = spec.training.fsdp
    return (fsdp.fsdp_size if fsdp else None) or count_train_workers(training_group(spec))
