"""Warnings that frameworks share: fields without an effect, and overrides that replace a field."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlt_api.blocks.training import Training
from rlt_api.frameworks.mapping import Setting
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import IMAGE_SCHEME
from rlt_api.spec.objects import SCHEME

Unused = tuple[str, bool, str]
"""Path of a field, whether the spec gives it, and why it has no effect."""


def warn_unused(spec: RLTrainingJobSpec, list_own: Callable[[RLTrainingJobSpec], Iterator[Unused]]) -> Iterator[str]:
    """Yield the warnings about fields without an effect. `list_own` lists the ones that a framework does not use."""
    for field, is_given, reason in [*_list_unused(spec), *list_own(spec)]:
        if is_given:
            yield f"{field}: has no effect with framework {spec.framework.type}: {reason}"


def warn_remote_code(spec: RLTrainingJobSpec, title: str) -> Iterator[str]:
    """Warn about trustRemoteCode false for a framework that always runs the model's code."""
    model = spec.model
    if model and not model.trust_remote_code and not (model.path or "").startswith(("/", SCHEME, IMAGE_SCHEME)):
        yield f"spec.model.trustRemoteCode: false: {title} always runs code from the model's repository; use a folder"


def describe_replacement(owner: Setting | None) -> str:
    """Describe what an override replaces."""
    return (
        f"replaces {owner.fields[0]}; use that field"
        if owner and owner.fields
        else "replaces the value of the operator"
    )


def _list_unused(spec: RLTrainingJobSpec) -> Iterator[Unused]:
    """Fields that change safety or speed, not the training."""
    rollout = spec.rollout
    yield "spec.rollout.kvCacheSpace", rollout.kv_cache_space != 1, "it is the cache on a CPU"
    keeps = rollout.staleness is not None and rollout.staleness.kv_cache != "recompute"
    yield "spec.rollout.staleness.kvCache", keeps, "it has no option for it"
    yield "spec.rollout.verifyWeightsFreq", rollout.verify_weights_freq != 1, "it verifies no weight syncs"
    for index, reward in enumerate(spec.rewards):
        limit = reward.function and reward.function.timeout_seconds
        field = f"spec.rewards[{index}]"
        yield f"{field}.function.timeoutSeconds", limit not in (None, 10.0), "it waits for the function"


def find_timeout(spec: RLTrainingJobSpec) -> tuple[str, bool]:
    """Return the path of collectiveTimeoutSeconds, and whether the spec gives it."""
    default = Training.model_fields["collective_timeout_seconds"].default
    return "spec.training.collectiveTimeoutSeconds", spec.training.collective_timeout_seconds != default
