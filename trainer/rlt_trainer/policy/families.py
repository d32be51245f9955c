"""Which model families the trainer supports, from their configs. docs/reference/model-families.md lists all of them."""

from __future__ import annotations

from math import gcd
from typing import Any

from transformers import PreTrainedConfig

from rlt_api.blocks.model import Lora
from rlt_api.rules.model_families import EXPERT_PARALLEL, ROUTER_BIAS
from rlt_trainer.telemetry.flops import count_experts

ENCODER = "its attention is not causal"
DECODER = "it counts positions from the start of the padded row, and not from the first token"
STATE = "padding changes its recurrent state"
PARTS = "it is not a decoder of text alone, and transformers cannot load its text decoder separately"
UNSUPPORTED = {
    **dict.fromkeys(
        (
            *("bert", "bert-generation", "big_bird", "camembert", "cpmant", "data2vec-text", "electra", "ernie"),
            *("megatron-bert", "prophetnet", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
            *("xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod"),
        ),
        ENCODER,
    ),
    **dict.fromkeys(
        (
            *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus"),
            *("plbart", "trocr"),
        ),
        DECODER,
    ),
    **dict.fromkeys(("recurrent_gemma", "rwkv", "xlstm"), STATE),
    **dict.fromkeys(("blt", "emu3", "gemma3n", "mllama", "musicgen", "musicgen_melody"), PARTS),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), "it only drafts tokens for another model"),
    **dict.fromkeys(("zamba", "zamba2"), "its layers share weights, which FSDP2 does not support"),
    "modernbert-decoder": "its output layer is not linear in the hidden states",
}
"""model_type -> why its log-probabilities would differ from transformers'."""
NOT_PACKABLE = {
    **dict.fromkeys(("gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"), "its attention has sinks"),
    **dict.fromkeys(("moshi", "nemotron"), "its attention does not get the lengths of the sequences"),
    "doge": "it builds its own attention mask",
}
"""model_type -> why useRemovePadding is not supported, where the attributes of its class do not show it."""
VISION = ("qwen2_5_vl", "qwen3_vl")
"""model_type of the vision-language models, whose prompts can have images (data.imageKey)."""
VISION_TOWER = "visual"
"""Name of the vision tower in these models."""
ROUTERS = dict.fromkeys(("llama4", "llama4_text"), ("router",))
"""model_type -> linear layers of a router that return more than a tensor, so that peft cannot wrap them."""
PACKABLE_LAYERS = {"full_attention", "sliding_attention"}
CRITICS = "llama, qwen2, qwen3, mistral or gemma2"


def validate_family(config: PreTrainedConfig, *, packed: bool, field: str = "model") -> None:
    """Raise ValueError, naming `field`, if log-probabilities of this model would be wrong, padded or packed."""
    name = config.model_type
    if reason := UNSUPPORTED.get(name):
        raise ValueError(
            f"{field}.path: models of type {name} are not supported: {reason}. Use a supported family: "
            "docs/reference/model-families.md."
        )
    if packed and (reason := find_packing_obstacle(config)):
        raise ValueError(
            f"{field}.useRemovePadding does not work with models of type {name}: {reason}. Set it to false."
        )


def validate_critic_family(config: PreTrainedConfig, *, packed: bool) -> None:
    """Raise ValueError if the critic cannot be initialized from this model."""
    if not has_value_head(config):
        raise ValueError(
            f"algorithm.critic.modelPath: transformers has no token classification model with a head named score for "
            f"{config.model_type} models. Set modelPath to a model of another family with the same vocabulary, "
            f"such as {CRITICS}, or use an advEstimator without a critic."
        )
    validate_family(config, packed=packed, field="algorithm.critic")


def validate_adapters(config: PreTrainedConfig, lora: Lora) -> None:
    """Raise ValueError if adapters would be added to stacked experts or to a router.

    For stacked experts, peft (peft/utils/transformers_weight_conversion.py) wraps the parameters of experts and router,
    and not linear layers. Their adapters are not merged for the engine.
    """
    layers = find_layers_without_adapters(config.get_text_config().model_type)
    if layers and {"all-linear", *layers} & {each.rpartition(".")[2] for each in lora.target_modules}:
        raise ValueError(
            f"model.lora.targetModules: {', '.join(lora.target_modules)} contains experts or routers of "
            f"{config.model_type} models, on which adapters are not supported. List other linear layers, such as "
            "q_proj and o_proj."
        )


def validate_expert_parallel(config: PreTrainedConfig, size: int) -> None:
    """Raise ValueError if `size` ranks cannot split the experts of this model."""
    if size == 1:
        return
    field = f"training.expertParallelSize: {size}"
    text = config.get_text_config()
    if text.model_type not in EXPERT_PARALLEL:
        raise ValueError(
            f"{field} is not supported for models of type {config.model_type}, only for "
            f"{', '.join(EXPERT_PARALLEL)}. Remove it."
        )
    experts = count_experts(text)
    if experts % size:
        raise ValueError(f"{field} does not divide the {experts} experts of a layer. Use {gcd(size, experts)}.")


def validate_router_loss(config: PreTrainedConfig, coefficient: float) -> None:
    """Raise ValueError if the family is not trained with an auxiliary loss. DeepSeek and GLM change a bias instead."""
    if coefficient > 0 and not hasattr(config.get_text_config(), "router_aux_loss_coef"):
        raise ValueError(
            f"algorithm.routerAuxLossCoef: {coefficient:g}: models of type {config.model_type} have no auxiliary loss, "
            "router_aux_loss_coef in config.json. Remove it."
        )


def validate_router_bias(config: PreTrainedConfig, rate: float) -> None:
    """Raise ValueError if the routers of this model have no bias to update."""
    if rate > 0 and config.get_text_config().model_type not in ROUTER_BIAS:
        raise ValueError(
            f"algorithm.routerBiasUpdateRate: {rate:g}: the routers of {config.model_type} models have no "
            "correction bias, e_score_correction_bias. Remove it."
        )


def validate_router_replay(config: PreTrainedConfig, mode: str) -> None:
    """Raise ValueError if the choices of this model's routers cannot be replaced."""
    if mode != "disabled" and config.get_text_config().model_type not in EXPERT_PARALLEL:
        raise ValueError(
            f"algorithm.routerReplay: {mode} is not supported for models of type {config.model_type}, only for "
            f"{', '.join(EXPERT_PARALLEL)}. Remove it."
        )


def find_layers_without_adapters(model_type: str) -> list[str]:
    """Return the names of layers that adapters do not support: single experts that transformers stacks, and routers."""
    # Slow imports that the driver needs only for adapters.
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    from transformers.core_model_loading import MergeModulelist, WeightConverter, WeightTransform

    conversions: list[WeightTransform] = get_checkpoint_conversion_mapping(model_type) or []  # type: ignore[no-untyped-call]
    patterns = [
        pattern
        for each in conversions
        if isinstance(each, WeightConverter) and isinstance(each.operations[0], MergeModulelist)
        for pattern in each.source_patterns
    ]
    experts = {pattern.removesuffix(".weight").rpartition(".")[2] for pattern in patterns}
    return sorted(experts.union(ROUTERS.get(model_type, ())))


def has_value_head(config: PreTrainedConfig) -> bool:
    """Whether transformers' token classification model for this config has a linear head named `score`."""
    # Slow imports that the driver needs only for a critic.
    from transformers import AutoModelForTokenClassification
    from transformers.modeling_layers import GenericForTokenClassification

    if "AutoModelForTokenClassification" in (getattr(config, "auto_map", None) or {}):
        return True  # custom code: known only when the model is loaded
    model = find_class(AutoModelForTokenClassification, config)
    return model is not None and issubclass(model, GenericForTokenClassification)


def find_packing_obstacle(config: PreTrainedConfig) -> str | None:
    """Return why sequences of this model cannot be packed, or None."""
    text = config.get_text_config()
    if reason := NOT_PACKABLE.get(config.model_type) or NOT_PACKABLE.get(text.model_type):
        return reason
    if others := set(getattr(text, "layer_types", None) or ()) - PACKABLE_LAYERS:
        return f"state or attention of {', '.join(sorted(others))} layers would leak between packed sequences"
    if getattr(text, "attn_logit_softcapping", None) is not None:
        return "its attention has soft caps"
    model = find_class(find_auto_class(config), config)
    if model is None:  # custom code: packed_attention raises an error if it does not get the lengths
        return None
    if model._is_stateful:
        return "its recurrent state would leak between packed sequences"
    return None if model._supports_attention_backend else "its attention cannot be replaced"


def find_auto_class(config: PreTrainedConfig) -> Any:
    """Return transformers' auto class of the policy."""
    # Slow imports, which the driver needs only to validate packing.
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if config.model_type in VISION else AutoModelForCausalLM


def find_class(auto: Any, config: PreTrainedConfig) -> Any:
    """Return transformers' class for a config, such as Qwen3ForCausalLM. None for custom code."""
    return auto._model_mapping.get(type(config), None)
