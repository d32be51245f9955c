"""Defaults that depend on the accelerators of a job. The types hold those for CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt_api.blocks.data import Data

GPU_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "model": {"dtype": "bfloat16", "enableGradientCheckpointing": True, "useRemovePadding": True},
    "rollout": {"enforceEager": False},
}
"""Block -> field -> default for jobs whose worker groups all have NVIDIA or AMD GPUs: verl's defaults
(verl/trainer/config). On CPUs, runs are small: float32 is exact, and the others save nothing."""
GPU_REFERENCE_DEFAULTS: Mapping[str, Any] = {"paramOffload": True}
"""The same for spec.training.reference of the builtin trainer, if a reference is loaded: one pass of a step uses it."""
GPU_CRITIC_DEFAULTS: Mapping[str, Any] = {"enableGradientCheckpointing": True, "useRemovePadding": True}
"""The same for spec.algorithm.critic, if there is one."""
MIN_MICRO_BATCH_TOKENS = 16_384
"""Lower bound of training.ppoMaxTokenLenPerDevice's default: verl's default of ppo_max_token_len_per_gpu."""
ROWS = "MicroBatchSizePerDevice"
"""The last part of the names of fields that count the responses in a micro-batch."""
DEPENDS_ON = {
    "rollout.freeCacheEngine": r"rollout(\.mode)?",
    "training.reference": r"algorithm\.kl(LossCoef|InReward.*)",
    "training.useTorchCompile": r"model\.useLiger|data(\.imageKey)?",
    "training.useDynamicBsz": rf"(training|algorithm)\..*{ROWS}",
    "training.ppoMaxTokenLenPerDevice": (
        rf"(training|algorithm)\..*{ROWS}|training\.(useDynamicBsz|contextParallelSize)|data(\.max.*Length)?"
    ),
}
"""Field with a default -> the paths of the fields on which the default depends, as a regular expression."""
GPU_VENDORS = frozenset({"nvidia.com", "amd.com"})


def add_accelerator_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults for GPUs to a merged spec, except for a command, as JSON. Given values are kept.

    `spec` is not changed. A missing model stays missing: it has its own error.
    """
    if not has_gpus(spec) or spec.get("framework", {}).get("type", "builtin") == "command":
        return dict(spec)
    filled = {name: {**fields, **spec.get(name, {})} for name, fields in GPU_DEFAULTS.items()}
    if "model" not in spec:
        del filled["model"]
    algorithm = spec.get("algorithm", {})
    if spec.get("framework", {}).get("type", "builtin") == "builtin":
        training = _add_reference_defaults(spec, _add_micro_batch_tokens(spec))
        filled["training"] = {"useTorchCompile": _can_compile(spec), **training}
    if "dpo" in algorithm:  # no engines
        del filled["rollout"]
    else:  # separate engines share their memory with nothing
        filled["rollout"].setdefault("freeCacheEngine", filled["rollout"].get("mode", "colocated") == "colocated")
    if "critic" in algorithm:
        filled["algorithm"] = {**algorithm, "critic": {**GPU_CRITIC_DEFAULTS, **algorithm["critic"]}}
    return {**spec, **filled}


def _add_micro_batch_tokens(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return spec.training with micro-batches that are filled by tokens, unless it asks for responses.

    The default limit holds the longest prompt with its response, or both responses of a pair.
    """
    training = spec.get("training", {})
    algorithm = spec.get("algorithm", {})
    data = spec.get("data", {})
    if not training.get("useDynamicBsz", not (_gives_rows(training) or _gives_rows(algorithm))):
        return dict(training)
    prompt = data.get("maxPromptLength", Data.model_fields["max_prompt_length"].default)
    response = data.get("maxResponseLength", Data.model_fields["max_response_length"].default)
    devices = training.get("contextParallelSize", 1)
    if not all(isinstance(each, int) and each > 0 for each in (prompt, response, devices)):
        return dict(training)  # of an invalid runtime, which is reported later
    longest = (prompt + response) * (2 if "dpo" in algorithm else 1)
    limit = max(-(-longest // devices), MIN_MICRO_BATCH_TOKENS)
    return {"useDynamicBsz": True, "ppoMaxTokenLenPerDevice": limit, **training}


def _can_compile(spec: Mapping[str, Any]) -> bool:
    """Whether torch.compile can be combined with the other fields. verl's default is true."""
    return not spec.get("model", {}).get("useLiger") and spec.get("data", {}).get("imageKey") is None


def _add_reference_defaults(spec: Mapping[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    """Return `training` with the defaults of the reference, if a term of spec.algorithm needs one."""
    algorithm = spec.get("algorithm", {})
    if not (algorithm.get("klLossCoef") or "klInReward" in algorithm or "dpo" in algorithm):
        return training
    return {**training, "reference": {**GPU_REFERENCE_DEFAULTS, **training.get("reference", {})}}


def _gives_rows(block: Mapping[str, Any]) -> bool:
    """Whether a block, or a block in it, has a number of responses in a micro-batch."""
    return any(
        name.endswith(ROWS) or (isinstance(value, Mapping) and _gives_rows(value)) for name, value in block.items()
    )


def has_gpus(spec: Mapping[str, Any]) -> bool:
    """Whether all worker groups of a merged spec have GPUs that the trainer supports."""
    groups = spec.get("cluster", {}).get("workers", [])
    return bool(groups) and all(
        (group.get("accelerator") or {}).get("resourceName", "").partition("/")[0] in GPU_VENDORS for group in groups
    )
