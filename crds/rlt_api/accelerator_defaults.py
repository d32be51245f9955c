"""Defaults that depend on the accelerators of a job. The types hold those for CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GPU_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "model": {"dtype": "bfloat16", "enableGradientCheckpointing": True, "useRemovePadding": True},
    "rollout": {"enforceEager": False},
}
"""Block -> field -> default for jobs whose worker groups all have NVIDIA or AMD GPUs: verl's defaults
(verl/trainer/config). On CPUs, runs are small: float32 is exact, and the others save nothing."""
GPU_CRITIC_DEFAULTS: Mapping[str, Any] = {"enableGradientCheckpointing": True, "useRemovePadding": True}
"""The same for spec.algorithm.critic, if there is one."""
GPU_VENDORS = frozenset({"nvidia.com", "amd.com"})


def add_accelerator_defaults(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults for GPUs to a merged spec, except for a command, as JSON. Given values are kept.

    `spec` is not changed. A missing model stays missing: it has an error of its own.
    """
    if not has_gpus(spec) or spec.get("framework", {}).get("type", "builtin") == "command":
        return dict(spec)
    filled = {name: {**fields, **spec.get(name, {})} for name, fields in GPU_DEFAULTS.items()}
    if "model" not in spec:
        del filled["model"]
    algorithm = spec.get("algorithm", {})
    if "dpo" in algorithm:  # no engines
        del filled["rollout"]
    else:  # separate engines share their memory with nothing
        filled["rollout"].setdefault("freeCacheEngine", filled["rollout"].get("mode", "colocated") == "colocated")
    if "critic" in algorithm:
        filled["algorithm"] = {**algorithm, "critic": {**GPU_CRITIC_DEFAULTS, **algorithm["critic"]}}
    return {**spec, **filled}


def has_gpus(spec: Mapping[str, Any]) -> bool:
    """Whether all worker groups of a merged spec have GPUs that the trainer supports."""
    groups = spec.get("cluster", {}).get("workers", [])
    return bool(groups) and all(
        (group.get("accelerator") or {}).get("resourceName", "").partition("/")[0] in GPU_VENDORS for group in groups
    )
