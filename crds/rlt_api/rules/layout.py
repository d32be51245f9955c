"""How a job is laid out over its pods: ranks, what they share, and the groups they are in."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.finding import Finding
from rlt_api.rules.nearest import divisors_around, either, multiples_around
from rlt_api.spec import RLTrainingJobSpec

WORKERS = "spec.cluster.workers[0]"
RANKS = (f"{WORKERS}.replicas", f"{WORKERS}.accelerator.count")
"""What the number of ranks is made of."""
MODEL_PARALLEL = tuple(f"spec.training.{name}ParallelSize" for name in ("tensor", "pipeline", "context"))


def ranks(group: WorkerGroup) -> int:
    """Processes that train: one for each accelerator, or one for each pod without any."""
    return group.replicas * (group.accelerator.count if group.accelerator else 1)


def model_parallel_size(spec: RLTrainingJobSpec) -> int:
    """Ranks that work on the same responses: tensor x pipeline x context parallel."""
    training = spec.training
    return training.tensor_parallel_size * training.pipeline_parallel_size * training.context_parallel_size


def data_parallel_size(spec: RLTrainingJobSpec) -> int:
    """Shares that a batch is cut into, at least 1."""
    return max(1, ranks(spec.cluster.workers[0]) // model_parallel_size(spec))


def counted(spec: RLTrainingJobSpec) -> str:
    """The number of ranks with its arithmetic, for messages."""
    group = spec.cluster.workers[0]
    if group.accelerator is None:
        return f"{ranks(group)} training processes (replicas {group.replicas})"
    return (
        f"{ranks(group)} training processes (replicas {group.replicas} x "
        f"{group.accelerator.count} {group.accelerator.resource_name})"
    )


def model_parallel_divides_ranks(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """verl: n_gpus must be divisible by model_parallel_size times context_parallel_size."""
    parallel, processes = model_parallel_size(spec), ranks(spec.cluster.workers[0])
    if processes % parallel == 0:
        return
    training = spec.training
    sizes = (training.tensor_parallel_size, training.pipeline_parallel_size, training.context_parallel_size)
    field, size = max(zip(MODEL_PARALLEL, sizes, strict=True), key=lambda pair: pair[1])
    yield Finding(
        field,
        str(size),
        f"tensor x pipeline x context parallel {' x '.join(map(str, sizes))} = {parallel} does not divide "
        f"{counted(spec)}",
        f"use sizes whose product divides {processes}, or {either(multiples_around(processes, parallel))} ranks",
        "parallel-sizes",
        (*MODEL_PARALLEL, *RANKS),
    )


def fsdp_size_divides_ranks(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A copy of the weights lies on fsdpSize ranks, and there is a whole number of copies."""
    fsdp = spec.training.fsdp
    if fsdp is None or fsdp.fsdp_size is None:
        return
    sharing = ranks(spec.cluster.workers[0]) // max(
        1, spec.training.tensor_parallel_size * spec.training.pipeline_parallel_size
    )
    if sharing and sharing % fsdp.fsdp_size:
        yield Finding(
            "spec.training.fsdp.fsdpSize",
            str(fsdp.fsdp_size),
            f"does not divide the {sharing} ranks that weights can be shared by: {counted(spec)}",
            f"use {either(divisors_around(fsdp.fsdp_size, sharing))}",
            "fsdp-size",
            (*MODEL_PARALLEL[:2], *RANKS),
        )


def reference_is_sharded_as_the_actor(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Weights are copied from the one to the other shard by shard."""
    reference, fsdp = spec.training.reference, spec.training.fsdp
    if reference is None or reference.fsdp_size is None:
        return
    actor = fsdp.fsdp_size if fsdp else None
    if actor != reference.fsdp_size:
        yield Finding(
            "spec.training.reference.fsdpSize",
            str(reference.fsdp_size),
            f"is not training.fsdp.fsdpSize {actor or '(default: all ranks)'}: the reference is sharded as the actor",
            f"use {actor}, or leave it out" if actor else "leave it out, or give training.fsdp.fsdpSize the same",
            "reference-sharding",
            ("spec.training.fsdp.fsdpSize",),
        )


def engines_fit_their_workers(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """An engine is spread over devices of one worker."""
    size, group = spec.rollout.tensor_parallel_size, _engine_group(spec)
    devices = group.accelerator.count if group.accelerator else 1
    if devices % size:
        below = max(candidate for candidate in range(1, min(size, devices) + 1) if devices % candidate == 0)
        yield Finding(
            "spec.rollout.tensorParallelSize",
            str(size),
            f"does not divide the {devices} accelerators of one worker; an engine lies within a worker",
            f"use {below}, or give each worker {either(multiples_around(devices, size))} accelerators",
            "rollout-tensor-parallel",
            (RANKS[1],),
        )


def rollout_group_exists(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """ROLL's node2pg KeyError: roles are mapped to devices that there are not."""
    rollout, groups = spec.rollout, [group.name for group in spec.cluster.workers]
    rule, field = "rollout-worker-group", "spec.rollout.workerGroup"
    if rollout.mode == "colocated" and rollout.worker_group is not None:
        fix = "leave it out, or give mode: separate"
        yield Finding(field, rollout.worker_group, "is for mode separate", fix, rule, ("spec.rollout.mode",))
    if rollout.mode != "separate":
        return
    involved = ("spec.rollout.mode", "spec.cluster.workers")
    if rollout.worker_group not in groups:
        given = rollout.worker_group or "none"
        message = f"mode separate needs one of the worker groups {', '.join(groups)}"
        yield Finding(field, given, message, f"use {groups[-1]}", rule, involved)
    elif len(groups) == 1:
        message = "is the only worker group: none is left to train"
        yield Finding(field, groups[0], message, "add a worker group, or mode: colocated", rule, involved)


def _engine_group(spec: RLTrainingJobSpec) -> WorkerGroup:
    named = [group for group in spec.cluster.workers if group.name == spec.rollout.worker_group]
    return (named or spec.cluster.workers)[0]


RULES = (
    model_parallel_divides_ranks,
    fsdp_size_divides_ranks,
    reference_is_sharded_as_the_actor,
    engines_fit_their_workers,
    rollout_group_exists,
)
