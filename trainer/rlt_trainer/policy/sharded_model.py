"""A sharded model: created on the meta device, sharded by FSDP2, then loaded from its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.initialization import guard_torch_init_functions
from transformers.utils import GENERATION_CONFIG_NAME

from rlt_api.blocks.model import Lora, Model
from rlt_api.blocks.training import Fsdp, Training
from rlt_trainer.policy import packed_attention
from rlt_trainer.policy.config import build_model_error, load_config_from
from rlt_trainer.policy.expert_parallel import find_experts, split_experts
from rlt_trainer.policy.families import (
    VISION,
    VISION_TOWER,
    find_auto_class,
    validate_adapters,
    validate_critic_family,
    validate_expert_parallel,
    validate_family,
)
from rlt_trainer.policy.liger import apply_liger
from rlt_trainer.policy.lora import add_adapters, base_name, initialize_magnitudes
from rlt_trainer.policy.mesh import EXPERT_DIMENSION, wait_for_ranks
from rlt_trainer.policy.sharded_weights import initialize_weight, load_weights
from rlt_trainer.policy.sharding import find_layers, shard
from rlt_trainer.policy.weight_files import set_conversions

Kind = Literal["actor", "critic", "reward"]
HEAD_CLASSES: dict[Kind, Any] = {
    "critic": AutoModelForTokenClassification,
    "reward": AutoModelForSequenceClassification,
}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is sharded and run."""

    mesh: DeviceMesh
    """All ranks (mesh.py)."""
    expert_mesh: DeviceMesh | None = None
    """The ranks that split experts (mesh.py). None: every rank computes all experts."""
    dtype: torch.dtype
    """Of computation, gathered weights and frozen shards. Trained shards, gradients and optimizer state are float32."""
    frozen: bool = False
    """Whether no weight is trained."""
    freeze_vision_tower: bool = False
    """Whether the vision tower of a vision-language model is frozen."""
    lora: Lora | None = None
    gradient_checkpointing: bool = False
    packed: bool = False
    """Whether sequences are packed without padding."""
    compiled: bool = False
    """Whether layers without experts are compiled."""
    liger: bool = False
    """Whether an actor has Liger's kernels."""
    reshard_after_forward: bool = True
    trust_remote_code: bool = False
    seed: int = 0
    """For weights that are not in the files."""

    @classmethod
    def of(
        cls,
        model: Model,
        training: Training,
        *,
        mesh: DeviceMesh,
        expert_mesh: DeviceMesh | None = None,
        dtype: torch.dtype,
        gradient_checkpointing: bool,
        packed: bool,
        lora: Lora | None = None,
    ) -> Self:
        """Build the options of one of a job's models. `model` and `training` give those that all its models share."""
        return cls(
            mesh=mesh,
            expert_mesh=expert_mesh,
            dtype=dtype,
            freeze_vision_tower=model.freeze_vision_tower,
            lora=lora,
            gradient_checkpointing=gradient_checkpointing,
            packed=packed,
            compiled=training.use_torch_compile,
            liger=model.use_liger,
            reshard_after_forward=(training.fsdp or Fsdp()).reshard_after_forward,
            trust_remote_code=model.trust_remote_code,
            seed=training.seed,
        )


def load_sharded_model(kind: Kind, files: str, options: ModelOptions, forward: Callable[..., Any]) -> PreTrainedModel:
    """Load the model in `files`, in evaluation mode: dropout would change the ratio of new to old policy.

    forward: replaces the model's forward, see `shard`. Collective.
    Raises ValueError naming `files` if they cannot be loaded, or the model's family if it is not supported. A reward
    model must have one output, and all its weights in the files.
    """
    config = _load_config(kind, files, options)
    try:
        with torch.device("meta"):
            model: PreTrainedModel = _find_class(kind, config).from_config(
                config,
                dtype=torch.float32,
                attn_implementation=_find_attention(config) if options.packed else None,
                trust_remote_code=options.trust_remote_code,
            )
    except (OSError, ValueError) as error:
        raise build_model_error(files, error) from error
    model.eval()  # type: ignore[no-untyped-call]
    set_conversions(model, get_model_conversion_mapping(model))
    if kind == "actor" and (Path(files) / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(files)
    if options.liger and kind == "actor":
        apply_liger(model)
    if options.lora is not None:
        validate_adapters(config, options.lora)
        add_adapters(model, options.lora)
    if options.frozen:
        model.requires_grad_(False)
    if options.freeze_vision_tower and kind == "actor":
        model.base_model.get_submodule(VISION_TOWER).requires_grad_(False)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            # FSDP2 gathers weights in this dtype, so that float32 shards of frozen weights have the same results.
            parameter.data = parameter.data.to(options.dtype)
    experts: list[nn.Module] = []
    if options.expert_mesh is not None:
        part = options.expert_mesh[EXPERT_DIMENSION]
        validate_expert_parallel(config, part.size())
        experts = find_experts(model)
        for each in experts:
            split_experts(each, part)
    layers = find_layers(model)
    shard(
        model,
        layers,
        experts,
        forward,
        mesh=options.mesh,
        expert_mesh=options.expert_mesh,
        dtype=options.dtype,
        gradient_checkpointing=options.gradient_checkpointing,
        compiled=[layer for layer in layers if options.compiled and not find_experts(layer)],
        reshard_after_forward=options.reshard_after_forward,
    )
    _load(kind, model, files, options)
    return model


def _load_config(kind: Kind, files: str, options: ModelOptions) -> PreTrainedConfig:
    """Load the config in `files`, for one output if `kind` has a head. Raises ValueError if it is not supported."""
    config = load_config_from(files, trust_remote_code=options.trust_remote_code)
    if kind == "critic":
        validate_critic_family(config, packed=options.packed)
        config.num_labels = 1
    elif kind == "reward":
        if config.num_labels != 1:
            raise ValueError(f"it has {config.num_labels} outputs, not one")
    else:
        validate_family(config, packed=options.packed)
    return config


def _find_attention(config: PreTrainedConfig) -> str | dict[str, str]:
    """Return transformers' option for packed attention. A vision tower keeps its own."""
    return {"text_config": packed_attention.NAME} if config.model_type in VISION else packed_attention.NAME


def _find_class(kind: Kind, config: PreTrainedConfig) -> Any:
    return find_auto_class(config) if kind == "actor" else HEAD_CLASSES[kind]


def _load(kind: Kind, model: PreTrainedModel, files: str, options: ModelOptions) -> None:
    model.to_empty(device=options.mesh.device_type)
    model.tie_weights()
    _initialize_buffers(model)
    initializer_range = getattr(model.config.get_text_config(), "initializer_range", None) or 0.02

    def initialize(name: str, shape: torch.Size) -> Tensor | None:
        return None if kind == "reward" else initialize_weight(name, shape, options.seed, initializer_range)

    def load_full_model() -> PreTrainedModel:
        full, report = _find_class(kind, model.config).from_pretrained(
            files,
            config=model.config,
            dtype=torch.float32,
            trust_remote_code=options.trust_remote_code,
            output_loading_info=True,
        )
        if kind == "reward" and report["missing_keys"]:  # such as the head, which transformers initializes at random
            raise ValueError(f"it has no weights for {', '.join(sorted(report['missing_keys']))}")
        return full  # type: ignore[no-any-return]

    try:
        load_weights(model, files, initialize=initialize, base_name=base_name, load_full_model=load_full_model)
    except (OSError, ValueError) as error:
        raise build_model_error(files, error) from error
    initialize_magnitudes(model)
    wait_for_ranks()


@torch.no_grad()
def _initialize_buffers(model: PreTrainedModel) -> None:
    """Compute the buffers that are not in the files, such as rotary frequencies and Gemma's embed_scale.

    As in PreTrainedModel.initialize_weights, which takes a class of FSDP2 for custom code: the functions of
    transformers.initialization skip the marked tensors, here the weights. Modules with weights alone are left out.
    """
    for tensor in model.state_dict(keep_vars=True).values():
        tensor._is_hf_initialized = True
    with guard_torch_init_functions():
        _initialize(model, model)


def _initialize(module: nn.Module, owner: PreTrainedModel) -> None:
    for child in module.children():
        _initialize(child, child if isinstance(child, PreTrainedModel) else owner)
    if not list(module.parameters(recurse=False)) or module._non_persistent_buffers_set:
        owner._init_weights(module)  # type: ignore[no-untyped-call]
