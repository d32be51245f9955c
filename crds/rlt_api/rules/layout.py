"""How a job is laid out over its pods: ranks, what they share, and the groups they are in."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.factors import divisors_around, either, multiples_around
from rlt_api.finding import Finding
from rlt_api.spec import RLTrainingJobSpec

WORKERS = "spec.cluster.workers[0]"
RANKS = (f"{WORKERS}.replicas", f"{WORKERS}.accelerator.count")
"""What the number of ranks is made of."""
CONTEXT_PARALLEL = "spec.training.contextParallelSize"


def rollout_group(spec: RLTrainingJobSpec) -> WorkerGroup | None:
    """The group that only generates, in rollout.mode separate."""
    if spec.rollout.mode != "separate":
        return None
    return next((group for group in spec.cluster.workers if group.name == spec.rollout.worker_group), None)


def training_group(spec: RLTrainingJobSpec) -> WorkerGroup:
    """The group that trains: the first one that does not only generate."""
    generating = rollout_group(spec)
    return next((group for group in spec.cluster.workers if group is not generating), spec.cluster.workers[0])


def ranks(group: WorkerGroup) -> int:
    """Processes that train: one for each accelerator, or one for each pod without any."""
    return group.replicas * (group.accelerator.count if group.accelerator else 1)


def data_parallel_size(spec: RLTrainingJobSpec) -> int:
    """Shares that a batch is cut into, at least 1."""
    return max(1, ranks(training_group(spec)) // spec.training.context_parallel_size)


def counted(spec: RLTrainingJobSpec) -> str:
    """The number of ranks with its arithmetic, for messages."""
    group = training_group(spec)
    if group.accelerator is None:
        return f"{ranks(group)} training processes (replicas {group.replicas})"
    return (
        f"{ranks(group)} training processes (replicas {group.replicas} x "
        f"{group.accelerator.count} {group.accelerator.resource_name})"
    )


def context_parallel_divides_ranks(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """verl: n_gpus must be divisible by model_parallel_size times context_parallel_size."""
    size, processes = spec.training.context_parallel_size, ranks(training_group(spec))
    if processes % size:
        message = f"does not divide {counted(spec)}"
        fix = f"use {either(divisors_around(size, processes))}, or {either(multiples_around(processes, size))} ranks"
        yield Finding(CONTEXT_PARALLEL, str(size), message, fix, "parallel-sizes", RANKS)


def fsdp_size_divides_ranks(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A copy of the weights lies on fsdpSize ranks, and there is a whole number of copies."""
    fsdp = spec.training.fsdp
    if fsdp is None or fsdp.fsdp_size is None:
        return
    sharing = ranks(training_group(spec))
    if sharing % fsdp.fsdp_size:
        yield Finding(
            "spec.training.fsdp.fsdpSize",
            str(fsdp.fsdp_size),
            f"does not divide the {sharing} ranks that weights can be shared by: {counted(spec)}",
            f"use {either(divisors_around(fsdp.fsdp_size, sharing))}",
            "fsdp-size",
            RANKS,
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
    size, group = spec.rollout.tensor_parallel_size, rollout_group(spec) or training_group(spec)
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


def engine_can_do_it(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """What only vLLM can do, and only where it shares the training's devices."""
    rollout, size, field = spec.rollout, spec.rollout.tensor_parallel_size, "spec.rollout.tensorParallelSize"
    rule, engine = "rollout-engine", "spec.rollout.engine"
    if rollout.engine == "transformers":
        fix = "leave it out, or give rollout.engine: vllm"
        if size > 1:
            yield Finding(field, str(size), "is for engine vllm", fix, rule, (engine,))
        if rollout.engine_kwargs:
            yield Finding("spec.rollout.engineKwargs", "given", "are options of vLLM", fix, rule, (engine,))
    elif rollout.mode == "separate" and size > 1:
        message = "is for mode colocated: engines in a group of their own lie on one device each"
        fix = "leave it out, or give rollout.mode: colocated"
        yield Finding(field, str(size), message, fix, rule, ("spec.rollout.mode",))


def staleness_has_engines_of_its_own(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Workers that train and generate in turns cannot do both at once."""
    if spec.rollout.staleness is not None and spec.rollout.mode == "colocated":
        message = "mode colocated generates and trains in turns, nothing would run ahead"
        fix = "leave it out, or give rollout.mode: separate with a workerGroup"
        field, involved = "spec.rollout.staleness", ("spec.rollout.mode",)
        yield Finding(field, "given", message, fix, "staleness", involved)


def shared_sequences_are_packed(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Ranks share the tokens of packed sequences."""
    size, packed = spec.training.context_parallel_size, bool(spec.model and spec.model.use_remove_padding)
    if size > 1 and not packed:
        message, fix = "shares packed sequences", "give model.useRemovePadding: true, or leave it out"
        involved = ("spec.model.useRemovePadding",)
        yield Finding(CONTEXT_PARALLEL, str(size), message, fix, "context-parallel", involved)
    critic, field = spec.algorithm.critic, "spec.algorithm.critic.useRemovePadding"
    if size > 1 and packed and critic is not None and not critic.use_remove_padding:
        message, fix = f"must be true with contextParallelSize {size}: ranks share packed sequences", "give true"
        yield Finding(field, "false", message, fix, "context-parallel", (CONTEXT_PARALLEL,))


RULES = (
    context_parallel_divides_ranks,
    fsdp_size_divides_ranks,
    reference_is_sharded_as_the_actor,
    engines_fit_their_workers,
    rollout_group_exists,
    engine_can_do_it,
    staleness_has_engines_of_its_own,
    shared_sequences_are_packed,
)
