"""Distribution of a job over its pods: worker groups, train workers and parallel sizes."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.findings.factors import join_or, nearest_multiples
from rlt_api.findings.finding import Edit, Finding, remove, use
from rlt_api.findings.kinds import Alternative, not_divisor, only_for, replaceable
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group, training_group

WORKERS = "spec.cluster.workers[0]"
TRAIN_WORKER_FIELDS = (f"{WORKERS}.replicas", f"{WORKERS}.accelerator.count")
"""The fields that determine the number of train workers."""
FSDP_SIZE = "spec.training.fsdp.fsdpSize"
CONTEXT_PARALLEL = "spec.training.contextParallelSize"
COLOCATED: tuple[Edit, ...] = ({"spec.rollout.mode": "colocated", "spec.rollout.workerGroup": None},)
"""The edit that lets the workers both train and generate."""


def count_train_workers(group: WorkerGroup) -> int:
    """Count the train workers: one for each accelerator, or one for each pod without accelerators."""
    return group.replicas * (group.accelerator.count if group.accelerator else 1)


def data_parallel_size(spec: RLTrainingJobSpec) -> int:
    """Return the number of data-parallel shares of a batch, at least 1."""
    return max(1, count_train_workers(training_group(spec)) // spec.training.context_parallel_size)


def describe_train_workers(spec: RLTrainingJobSpec) -> str:
    """Return the number of train workers with its calculation, for messages."""
    group = training_group(spec)
    if group.accelerator is None:
        return f"{count_train_workers(group)} train workers (replicas {group.replicas})"
    return (
        f"{count_train_workers(group)} train workers (replicas {group.replicas} x "
        f"{group.accelerator.count} {group.accelerator.resource_name})"
    )


def validate_context_parallel_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """contextParallelSize must divide the number of train workers."""
    size = spec.training.context_parallel_size
    workers = count_train_workers(training_group(spec))
    if workers % size:
        what = describe_train_workers(spec)
        totals = f"{join_or(nearest_multiples(workers, size))} train workers"
        involved = TRAIN_WORKER_FIELDS
        yield not_divisor(
            CONTEXT_PARALLEL, size, workers, what, instead=totals, rule="parallel-sizes", involved=involved
        )


def validate_fsdp_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """fsdpSize must divide the number of train workers: each copy of the weights is sharded over fsdpSize of them."""
    fsdp = spec.training.fsdp
    if fsdp is None or fsdp.fsdp_size is None:
        return
    workers = count_train_workers(training_group(spec))
    if workers % fsdp.fsdp_size:
        what = describe_train_workers(spec)
        yield not_divisor(FSDP_SIZE, fsdp.fsdp_size, workers, what, rule="fsdp-size", involved=TRAIN_WORKER_FIELDS)


def validate_reference_sharding(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """reference.fsdpSize must equal fsdp.fsdpSize: the weights are copied shard by shard."""
    reference = spec.training.reference
    fsdp = spec.training.fsdp
    if reference is None or reference.fsdp_size is None:
        return
    actor = fsdp.fsdp_size if fsdp else None
    if actor != reference.fsdp_size:
        field = "spec.training.reference.fsdpSize"
        value = str(reference.fsdp_size)
        message = f"is not equal to training.fsdp.fsdpSize {actor or '(default: all train workers)'}"
        fix = f"use {actor}, or remove it" if actor else "remove it, or set training.fsdp.fsdpSize to the same value"
        edits = (*(use(field, actor) if actor else ()), *remove(field))
        yield Finding(field, value, message, fix, rule="reference-sharding", involved=(FSDP_SIZE,), edits=edits)


def validate_rollout_tensor_parallel_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """tensorParallelSize must divide the accelerators of one worker pod. A separate engine can also span whole pods."""
    size = spec.rollout.tensor_parallel_size
    separate = rollout_group(spec)
    group = separate or training_group(spec)
    devices = group.accelerator.count if group.accelerator else 1
    field = "spec.rollout.tensorParallelSize"
    related: Alternative = {"rule": "rollout-tensor-parallel", "involved": TRAIN_WORKER_FIELDS}
    if separate and size > devices and size % devices == 0:
        pods = size // devices
        if separate.replicas % pods:
            given = f"is {pods} worker pods for each engine"
            message = f"{given}, which do not divide the {separate.replicas} of the worker group"
            related["instead"] = f"set replicas to {join_or(nearest_multiples(separate.replicas, pods))}"
            yield replaceable(field, size, message, devices, **related)
    elif devices % size:
        yield not_divisor(field, size, devices, f"the {devices} accelerators of one worker pod", **related)


def validate_rollout_worker_group(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rollout.mode separate needs a workerGroup that exists, and another group to train (ROLL: KeyError in node2pg)."""
    rollout = spec.rollout
    groups = [group.name for group in spec.cluster.workers]
    rule = "rollout-worker-group"
    field = "spec.rollout.workerGroup"
    given = rollout.worker_group
    if rollout.mode == "colocated" and given is not None:
        involved: tuple[str, ...] = ("spec.rollout.mode",)
        instead = "use mode: separate"
        yield only_for(field, "mode separate", value=given, instead=instead, rule=rule, involved=involved)
    if rollout.mode != "separate":
        return
    involved = ("spec.rollout.mode", "spec.cluster.workers")
    if given not in groups and len(groups) > 1:
        message = f"must be one of the worker groups {', '.join(groups)}"
        yield replaceable(field, given or "none", message, groups[-1], rule=rule, involved=involved)
    elif given not in groups:
        message = f"must be one of the worker groups {groups[0]}"
        fix = "add a worker group of this name, or use mode: colocated"
        yield Finding(field, given or "none", message, fix, rule=rule, involved=involved, edits=COLOCATED)
    elif len(groups) == 1:
        message = "is the only worker group, and mode separate needs another one to train"
        fix = "add a worker group, or use mode: colocated"
        yield Finding(field, groups[0], message, fix, rule=rule, involved=involved, edits=COLOCATED)


def validate_rollout_engine(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """tensorParallelSize above 1 and engineKwargs are only for engine vllm."""
    rollout = spec.rollout
    if rollout.engine != "transformers":
        return
    for field, value, is_given in (
        ("spec.rollout.tensorParallelSize", rollout.tensor_parallel_size, rollout.tensor_parallel_size > 1),
        ("spec.rollout.engineKwargs", "given", bool(rollout.engine_kwargs)),
    ):
        if is_given:
            instead = "use rollout.engine: vllm"
            edit: Edit = {"spec.rollout.engine": "vllm"}
            yield only_for(field, "engine vllm", value=value, instead=instead, or_set=edit, rule="rollout-engine")


def validate_context_parallel_packing(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """contextParallelSize above 1 needs useRemovePadding of the model and the critic: it splits packed sequences."""
    size = spec.training.context_parallel_size
    packed = bool(spec.model and spec.model.use_remove_padding)
    rule = "context-parallel"
    if size > 1 and not packed:
        other = "spec.model.useRemovePadding"
        fix = "use model.useRemovePadding: true, or remove it"
        edits = (*use(other, True), *remove(CONTEXT_PARALLEL))
        message = "needs packed sequences"
        yield Finding(CONTEXT_PARALLEL, str(size), message, fix, rule=rule, involved=(other,), edits=edits)
    critic = spec.algorithm.critic
    if size > 1 and packed and critic is not None and not critic.use_remove_padding:
        field = "spec.algorithm.critic.useRemovePadding"
        message = f"must be true with contextParallelSize {size}, which splits packed sequences"
        yield replaceable(field, False, message, True, rule=rule, involved=(CONTEXT_PARALLEL,))


TRAINING_RULES = (
    validate_context_parallel_size,
    validate_fsdp_size,
    validate_reference_sharding,
    validate_context_parallel_packing,
)
RULES = (
    *TRAINING_RULES,
    validate_rollout_tensor_parallel_size,
    validate_rollout_worker_group,
    validate_rollout_engine,
)
