"""Expert parallelism: the train workers that split the experts of a mixture."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import conflicts, not_divisor, superfluous
from rlt_api.rules.layout import TRAIN_WORKER_FIELDS, count_train_workers, describe_train_workers
from rlt_api.rules.model_shape import model_shape
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import training_group

EXPERT_PARALLEL = "spec.training.expertParallelSize"
MODEL = "spec.model"


def validate_expert_parallel_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """expertParallelSize must divide the number of train workers, and the number of experts of a known model."""
    size = spec.training.expert_parallel_size
    workers = count_train_workers(training_group(spec))
    shape = model_shape(spec.model) if spec.model else None
    experts = shape.experts if shape and shape.experts > 1 else 0
    common = gcd(workers, experts)
    rule = "expert-parallel-size"
    if workers % size:
        what = describe_train_workers(spec)
        yield not_divisor(EXPERT_PARALLEL, size, common, what, rule=rule, involved=TRAIN_WORKER_FIELDS)
    elif experts % size:
        what = f"the {experts} experts of a layer"
        yield not_divisor(EXPERT_PARALLEL, size, common, what, rule=rule, involved=(MODEL,))


def validate_expert_parallel(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """expertParallelSize is for mixtures of experts, without replicas or adapters."""
    training = spec.training
    model = spec.model
    size = training.expert_parallel_size
    rule = "expert-parallel"
    if size == 1 or model is None:
        return
    shape = model_shape(model)
    if shape is not None and shape.experts == 1:
        message = f"is for mixtures of experts, and {model.path or 'fromSeed'} has one feed-forward network in a layer"
        yield superfluous(EXPERT_PARALLEL, size, message, rule=rule, involved=(MODEL,))
    fsdp = training.fsdp
    workers = count_train_workers(training_group(spec))
    others = {
        "spec.training.fsdp.fsdpSize": bool(fsdp and fsdp.fsdp_size not in (None, workers)),
        "spec.model.lora": model.lora is not None,
    }
    yield from conflicts(EXPERT_PARALLEL, size, others, rule=rule)


RULES = (validate_expert_parallel_size,)
BUILTIN_RULES = (validate_expert_parallel,)
