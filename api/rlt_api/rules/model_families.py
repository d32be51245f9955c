"""Model families that the trainer rejects, from a model's config.json: without transformers.

The trainer's policy/families.py decides; generated/model_families.json has its decisions for each model_type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from math import gcd
from typing import Any

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import misspelled, replaceable, superfluous
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.rules.model_names import LINEAR_LAYERS, find_model_type
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines

RULE = "model-family"
PAGE = "docs/reference/model-families.md"
NOT_ON_VLLM_CPU: Mapping[str, str] = dict.fromkeys(
    ("deepseek_v32", "glm_moe_dsa"), "vLLM has no sparse attention for CPUs (vllm/platforms/cpu.py, vLLM 0.32)"
)
"""model_type -> why vLLM's CPU build does not run it."""
NOT_SYNCED_TO_VLLM: Mapping[str, str] = {
    "gpt_oss": "vLLM's reload of weights skips its experts (vllm/model_executor/models/gpt_oss.py, vLLM 0.32)"
}
"""model_type -> why vLLM does not get the weights of the policy."""

NO_ADAPTERS_ON_CPU = (
    "beside adapters, vLLM computes experts with Triton alone, which its CPU build does not have "
    "(vllm/model_executor/layers/fused_moe/oracle/unquantized.py, vLLM 0.32)"
)
"""Why vLLM's CPU build does not apply adapters to a mixture of experts."""
NOT_ADAPTED = "gate_up_proj"
NO_ADAPTERS_ON_IT = (
    f"vLLM takes {NOT_ADAPTED} for two layers, and rejects an adapter on it (vllm/model_executor/models/glm4.py, vLLM "
    "0.32); model.lora.targetModules without it, such as q_proj and o_proj, works"
)
"""Why vLLM does not apply an adapter to NOT_ADAPTED of SPLIT_IN_VLLM models."""
SPLIT_IN_VLLM = ("glm", "glm4")
LIGER_FAMILIES = (
    *("exaone4", "gemma", "gemma2", "gemma3_text", "glm4", "granite", "llama", "ministral"),
    *("mistral", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "smollm3"),
)
"""model_type of the dense text decoders with model.useLiger (MODEL_TYPE_TO_APPLY_LIGER_FN of liger-kernel 0.8)."""
ROUTER_BIAS = (
    *("axk1", "deepseek_v3", "deepseek_v32", "dots1", "exaone_moe", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa"),
    *("mimo_v2_flash", "solar_open"),
)
"""model_type of the mixtures whose routers have the buffer e_score_correction_bias, which routerBiasUpdateRate changes.
transformers loads it in float32."""
EXPERT_PARALLEL: Mapping[str, int] = {
    "deepseek_v3": 256,
    "glm4_moe": 128,
    "qwen3_5_moe_text": 256,
    "qwen3_moe": 128,
    "qwen3_next": 512,
}
"""model_type of the decoders whose experts expertParallelSize splits and routerReplay selects -> transformers' default
number of experts."""
VISION = ("qwen2_5_vl", "qwen3_vl")
"""model_type of the vision-language models (VISION in rlt_trainer/policy/families.py)."""
NUMBER_OF_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""The names in config.json for the number of experts in a layer. A family has one of them."""


@cache
def load_families() -> Mapping[str, Mapping[str, Any]]:
    """Load the decisions: model_type -> use (padded, packed, critic) -> the reason against it."""
    file = resources.files("rlt_api") / "generated" / "model_families.json"
    families: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return families


def validate_model_config(spec: RLTrainingJobSpec, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Validate a builtin job whose model has this config.json. Models with custom code are not validated."""
    name = str(config.get("model_type"))
    model = spec.model
    if spec.framework.type != "builtin" or model is None or model.path is None or "auto_map" in config:
        return
    family = load_families().get(name, {})
    of = f"of {name} models"
    if reason := family.get("padded"):
        message = f"models of type {name} are not supported: {reason}"
        yield Finding("spec.model.path", model.path, message, f"use a supported family: {PAGE}", rule=RULE)
        return
    if model.use_remove_padding and (reason := family.get("packed")):
        message = f"sequences {of} are not packed: {reason}"
        yield replaceable("spec.model.useRemovePadding", True, message, False, rule=RULE)
    layers = {"all-linear", *family["withoutAdapters"]} if "withoutAdapters" in family else set()
    targets = model.lora.target_modules if model.lora else []
    if found := [target for target in targets if target.rpartition(".")[2] in layers]:
        field = "spec.model.lora.targetModules"
        message = f"contains experts or routers {of}, on which adapters are not supported"
        fix = "list other linear layers, such as q_proj and o_proj"
        yield Finding(field, ", ".join(found), message, fix, rule=RULE)
    on_gpu = any(group.accelerator is not None for group in spec.cluster.workers)
    if model.lora and model.lora.sync_adapters and (reason := find_adapter_obstacle(name, targets, on_gpu=on_gpu)):
        message = f"does not work with models of type {name}: {reason}"
        yield superfluous("spec.model.lora.syncAdapters", True, message, rule=RULE)
    if model.use_liger and name not in LIGER_FAMILIES:
        message = f"is not supported for models of type {name}"
        yield replaceable("spec.model.useLiger", True, message, False, rule=RULE)
    size = spec.training.expert_parallel_size
    text: Mapping[str, Any] = config.get("text_config") or config
    decoder = str(text.get("model_type", name))
    experts = int(next((text[key] for key in NUMBER_OF_EXPERTS if key in text), EXPERT_PARALLEL.get(decoder, 0)))
    field = "spec.training.expertParallelSize"
    if size > 1 and decoder not in EXPERT_PARALLEL:
        message = f"the experts {of} are not split, only the experts of {', '.join(EXPERT_PARALLEL)}"
        yield superfluous(field, size, message, rule=RULE)
    elif experts % size:
        message = f"does not divide the {experts} experts of a layer"
        yield replaceable(field, size, message, gcd(experts, size), rule=RULE)
    rate = spec.algorithm.router_bias_update_rate
    if rate > 0 and decoder not in ROUTER_BIAS:
        message = f"the routers {of} have no correction bias, e_score_correction_bias"
        yield superfluous("spec.algorithm.routerBiasUpdateRate", rate, message, rule=RULE)
    replay = spec.algorithm.router_replay
    if replay != "disabled" and decoder not in EXPERT_PARALLEL:
        message = f"the experts {of} are not replayed, only the experts of {', '.join(EXPERT_PARALLEL)}"
        yield superfluous("spec.algorithm.routerReplay", replay, message, rule=RULE)
    if spec.data and spec.data.image_key is not None and name not in VISION:
        message = f"models of type {name} take no images. Types with images: {', '.join(VISION)}"
        yield superfluous("spec.data.imageKey", spec.data.image_key, message, instead="use such a model", rule=RULE)
    yield from _validate_targets(spec, name)
    if has_engines(spec) and spec.rollout.engine == "vllm" and (reason := find_vllm_obstacle(name, on_gpu=on_gpu)):
        message = f"does not work with models of type {name}: {reason}"
        yield replaceable("spec.rollout.engine", "vllm", message, "transformers", rule=RULE)


def _validate_targets(spec: RLTrainingJobSpec, name: str) -> Iterator[Finding]:
    """Each of targetModules is the name, or the end of the path, of a linear layer."""
    lora = spec.model.lora if spec.model else None
    layers = LINEAR_LAYERS.get(name)
    if lora is None or layers is None:
        return
    for index, target in enumerate(lora.target_modules):
        last = target.rpartition(".")[2]
        if target != "all-linear" and last not in layers:
            field = f"spec.model.lora.targetModules[{index}]"
            message = f"is not a linear layer of {name} models, on which adapters are supported"
            meant = find_nearest_word(last, layers, max_distance=3)
            other = f"use {', '.join(layers)}, or all-linear alone"
            yield misspelled(field, target, message, meant, otherwise=other, rule=RULE)


def validate_named_model(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A published model, known by its name, must have a family that the trainer supports with these settings:
    expertParallelSize, routerBiasUpdateRate, routerReplay, useLiger, targetModules and imageKey."""
    path = spec.model.path if spec.model else None
    name = find_model_type(path) if path else None
    if name is None or (spec.model and spec.model.trust_remote_code):
        return
    experts = spec.training.expert_parallel_size  # the number of experts is not in the name
    yield from validate_model_config(spec, {"model_type": name, "num_experts": experts})


def find_vllm_obstacle(model_type: str, *, on_gpu: bool) -> str | None:
    """Return why rollout.engine: vllm does not work with models of this type, or None."""
    return NOT_SYNCED_TO_VLLM.get(model_type) or (None if on_gpu else NOT_ON_VLLM_CPU.get(model_type))


def find_adapter_obstacle(model_type: str, targets: Sequence[str], *, on_gpu: bool) -> str | None:
    """Return why model.lora.syncAdapters does not work with targetModules `targets` on models of this type, or None."""
    if "withoutAdapters" in load_families().get(model_type, {}) and not on_gpu:
        return NO_ADAPTERS_ON_CPU
    names = {target.rpartition(".")[2] for target in targets}
    return NO_ADAPTERS_ON_IT if model_type in SPLIT_IN_VLLM and names & {"all-linear", NOT_ADAPTED} else None


RULES = (validate_named_model,)
