"""Distribution of a job over its pods: worker groups, train workers and parallel sizes."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.findings.factors import join_or, nearest_divisors, nearest_multiples
from rlt_api.findings.finding import Edit, Finding, remove, use
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group, training_group

WORKERS = "spec.cluster.workers[0]"
TRAIN_WORKER_FIELDS = (f"{WORKERS}.replicas", f"{WORKERS}.accelerator.count")
"""The fields that determine the number of train workers."""
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
    size, workers = spec.training.context_parallel_size, count_train_workers(training_group(spec))
    if workers % size:
        message = f"does not divide {describe_train_workers(spec)}"
        sizes, totals = nearest_divisors(size, workers), join_or(nearest_multiples(workers, size))
        fix, edits = f"use {join_or(sizes)}, or {totals} train workers", use(CONTEXT_PARALLEL, *sizes)
        yield Finding(CONTEXT_PARALLEL, str(size), message, fix, "parallel-sizes", TRAIN_WORKER_FIELDS, edits)


def validate_fsdp_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """fsdpSize must divide the number of train workers: each copy of the weights is sharded over fsdpSize of them."""
    fsdp = spec.training.fsdp
    if fsdp is None or fsdp.fsdp_size is None:
        return
    workers = count_train_workers(training_group(spec))
    if workers % fsdp.fsdp_size:
        field, sizes = "spec.training.fsdp.fsdpSize", nearest_divisors(fsdp.fsdp_size, workers)
        yield Finding(
            field,
            str(fsdp.fsdp_size),
            f"does not divide {describe_train_workers(spec)}",
            f"use {join_or(sizes)}",
            "fsdp-size",
            TRAIN_WORKER_FIELDS,
            use(field, *sizes),
        )


def validate_reference_sharding(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """reference.fsdpSize must equal fsdp.fsdpSize: the weights are copied shard by shard."""
    reference, fsdp = spec.training.reference, spec.training.fsdp
    if reference is None or reference.fsdp_size is None:
        return
    actor = fsdp.fsdp_size if fsdp else None
    if actor != reference.fsdp_size:
        field = "spec.training.reference.fsdpSize"
        yield Finding(
            field,
            str(reference.fsdp_size),
            f"is not equal to training.fsdp.fsdpSize {actor or '(default: all train workers)'}",
            f"use {actor}, or remove it" if actor else "remove it, or set training.fsdp.fsdpSize to the same value",
            "reference-sharding",
            ("spec.training.fsdp.fsdpSize",),
            (*(use(field, actor) if actor else ()), *remove(field)),
        )


def validate_rollout_tensor_parallel_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """tensorParallelSize must divide the accelerators of one worker pod. A separate engine can also span whole pods."""
    size, separate = spec.rollout.tensor_parallel_size, rollout_group(spec)
    group = separate or training_group(spec)
    devices = group.accelerator.count if group.accelerator else 1
    if separate and size > devices and size % devices == 0:
        pods = size // devices
        fits, counts = separate.replicas % pods == 0, join_or(nearest_multiples(separate.replicas, pods))
        message = (
            f"is {pods} worker pods for each engine, which do not divide the {separate.replicas} of the worker group"
        )
        other = f"replicas to {counts}"
    else:
        fits, counts = devices % size == 0, join_or(nearest_multiples(devices, size))
        message, other = (
            f"does not divide the {devices} accelerators of one worker pod",
            f"accelerator.count to {counts}",
        )
    if not fits:
        below = max(candidate for candidate in range(1, min(size, devices) + 1) if devices % candidate == 0)
        field = "spec.rollout.tensorParallelSize"
        fix, edits = f"use {below}, or set {other}", use(field, below)
        yield Finding(field, str(size), message, fix, "rollout-tensor-parallel", TRAIN_WORKER_FIELDS, edits)


def validate_rollout_worker_group(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rollout.mode separate needs a workerGroup that exists, and another group to train (ROLL: KeyError in node2pg)."""
    rollout, groups = spec.rollout, [group.name for group in spec.cluster.workers]
    rule, field = "rollout-worker-group", "spec.rollout.workerGroup"
    if rollout.mode == "colocated" and rollout.worker_group is not None:
        fix = "remove it, or use mode: separate"
        yield Finding(
            field, rollout.worker_group, "is only for mode separate", fix, rule, ("spec.rollout.mode",), remove(field)
        )
    if rollout.mode != "separate":
        return
    involved = ("spec.rollout.mode", "spec.cluster.workers")
    if rollout.worker_group not in groups:
        given = rollout.worker_group or "none"
        message = f"must be one of the worker groups {', '.join(groups)}"
        if len(groups) == 1:
            fix = "add a worker group of this name, or use mode: colocated"
            yield Finding(field, given, message, fix, rule, involved, COLOCATED)
        else:
            yield Finding(field, given, message, f"use {groups[-1]}", rule, involved, use(field, groups[-1]))
    elif len(groups) == 1:
        message = "is the only worker group, and mode separate needs another one to train"
        fix = "add a worker group, or use mode: colocated"
        yield Finding(field, groups[0], message, fix, rule, involved, COLOCATED)


def validate_rollout_engine(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """tensorParallelSize above 1 and engineKwargs are only for engine vllm."""
    rollout, size, field = spec.rollout, spec.rollout.tensor_parallel_size, "spec.rollout.tensorParallelSize"
    rule, engine = "rollout-engine", "spec.rollout.engine"
    if rollout.engine == "transformers":
        fix = "remove it, or use rollout.engine: vllm"
        if size > 1:
            edits = (*remove(field), *use(engine, "vllm"))
            yield Finding(field, str(size), "is only for engine vllm", fix, rule, (engine,), edits)
        if rollout.engine_kwargs:
            field = "spec.rollout.engineKwargs"
            edits = (*remove(field), *use(engine, "vllm"))
            yield Finding(field, "given", "is only for engine vllm", fix, rule, (engine,), edits)


def validate_context_parallel_packing(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """contextParallelSize above 1 needs useRemovePadding of the model and the critic: it splits packed sequences."""
    size, packed = spec.training.context_parallel_size, bool(spec.model and spec.model.use_remove_padding)
    if size > 1 and not packed:
        message, fix = "needs packed sequences", "use model.useRemovePadding: true, or remove it"
        involved = ("spec.model.useRemovePadding",)
        edits = (*use(involved[0], True), *remove(CONTEXT_PARALLEL))
        yield Finding(CONTEXT_PARALLEL, str(size), message, fix, "context-parallel", involved, edits)
    critic, field = spec.algorithm.critic, "spec.algorithm.critic.useRemovePadding"
    if size > 1 and packed and critic is not None and not critic.use_remove_padding:
        message, fix = f"must be true with contextParallelSize {size}, which splits packed sequences", "use true"
        yield Finding(field, "false", message, fix, "context-parallel", (CONTEXT_PARALLEL,), use(field, True))


RULES = (
    validate_context_parallel_size,
    validate_fsdp_size,
    validate_reference_sharding,
    validate_rollout_tensor_parallel_size,
    validate_rollout_worker_group,
    validate_rollout_engine,
    validate_context_parallel_packing,
)
