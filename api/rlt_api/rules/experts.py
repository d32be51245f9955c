"""Expert parallelism: the train workers that split the experts of a mixture."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.factors import join_or, nearest_divisors
from rlt_api.findings.finding import Finding, remove, use
from rlt_api.rules.layout import TRAIN_WORKER_FIELDS, count_train_workers, describe_train_workers
from rlt_api.rules.model_shape import model_shape
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group

EXPERT_PARALLEL = "spec.training.expertParallelSize"
MODEL = "spec.model"


def validate_expert_parallel_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """expertParallelSize must divide the number of train workers, and the number of experts of a known model."""
    size, workers = spec.training.expert_parallel_size, count_train_workers(training_group(spec))
    shape = model_shape(spec.model) if spec.model else None
    experts = shape.experts if shape and shape.experts > 1 else 0
    involved: tuple[str, ...]
    if workers % size:
        message, involved = f"does not divide {describe_train_workers(spec)}", TRAIN_WORKER_FIELDS
    elif experts % size:
        message, involved = f"does not divide the {experts} experts of a layer", (MODEL,)
    else:
        return
    sizes = nearest_divisors(size, gcd(workers, experts))
    edits = use(EXPERT_PARALLEL, *sizes)
    yield Finding(EXPERT_PARALLEL, str(size), message, f"use {join_or(sizes)}", "expert-parallel-size", involved, edits)


def validate_expert_parallel(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """expertParallelSize is for mixtures of experts, without replicas, adapters or compiled layers."""
    training, model = spec.training, spec.model
    size, rule = str(training.expert_parallel_size), "expert-parallel"
    if spec.framework.type != "builtin" or training.expert_parallel_size == 1 or model is None:
        return
    shape = model_shape(model)
    if shape is not None and shape.experts == 1:
        message = f"is for mixtures of experts, and {model.path or 'fromSeed'} has one feed-forward network in a layer"
        yield Finding(EXPERT_PARALLEL, size, message, "remove it", rule, (MODEL,), remove(EXPERT_PARALLEL))
    fsdp, workers = training.fsdp, count_train_workers(training_group(spec))
    for other, is_set in {
        "spec.training.fsdp.fsdpSize": bool(fsdp and fsdp.fsdp_size not in (None, workers)),
        "spec.training.useTorchCompile": training.use_torch_compile,
        "spec.model.lora": model.lora is not None,
    }.items():
        if is_set:
            message = f"cannot be combined with {other.removeprefix('spec.')}"
            edits = remove(EXPERT_PARALLEL, other)
            yield Finding(EXPERT_PARALLEL, size, message, "remove one of them", rule, (other,), edits)


RULES = (
    validate_expert_parallel_size,
    validate_expert_parallel,
)
