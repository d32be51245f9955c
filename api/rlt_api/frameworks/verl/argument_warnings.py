"""Warnings about verl's arguments in framework.command: unknown keys, sizes, and contradictions with the spec.

The sizes are those that verl 0.9.1 asserts at its start (verl/utils/config.py, verl/workers/config) or in its first
update (train_mini_batch in verl/workers/engine_workers.py). Other versions may differ, so that they are warnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.factors import join_or, nearest_divisors, nearest_multiples
from rlt_api.findings.finding import printable
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.frameworks.arguments import Argument, Program
from rlt_api.frameworks.command.devices import COMMAND, DEVICES, NODES, count_devices, describe_groups, read_verl_number
from rlt_api.frameworks.mapping import Mapped, find, load_mapping
from rlt_api.rules.storage import describe_missing_volume
from rlt_api.spec.job_spec import RLTrainingJobSpec

BATCH = "data.train_batch_size"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"
RESPONSES = "actor_rollout_ref.rollout.n"
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
OLD_MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz"
SEQUENCE_PARALLEL = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"
PATHS = ("data.train_files", "data.val_files", "actor_rollout_ref.model.path", "trainer.resume_from_path")
FSDP_SIZE = "actor_rollout_ref.actor.fsdp_config.fsdp_size"
SHARED = ("strategy", "fsdp_config.strategy", "fsdp_config.fsdp_size")
"""Settings below actor_rollout_ref.actor and .ref whose workers are the same."""
UTILIZATION = "actor_rollout_ref.rollout.gpu_memory_utilization"
MAX_LENGTH = "actor_rollout_ref.rollout.max_model_len"
LENGTHS = {
    "actor_rollout_ref.rollout.prompt_length": "data.max_prompt_length",
    "actor_rollout_ref.rollout.response_length": "data.max_response_length",
}
"""Lengths of the engine -> where their defaults are, both in tokens."""
ROLLOUT_NODES = "rollout.nnodes"
ROLLOUT_DEVICES = "rollout.n_gpus_per_node"


def warn_arguments(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about the arguments of verl."""
    yield from _warn_keys(program)
    if not program.own_config and program.values.get("model_engine") != "megatron":
        yield from _warn_sizes(program)
    yield from _warn_unequal_shards(program)
    yield from _warn_engine(program)
    yield from _warn_separate_devices(program, spec) if program.separate else _warn_idle_devices(program, spec)
    yield from _warn_contradictions(program, spec)


def _format_warning(argument: Argument, message: str) -> str:
    """Return the warning with the argument first. `printable` masks a value that may be a secret."""
    return f"{COMMAND}[{argument.index}]: {printable(f'{argument.prefix}{argument.key}={argument.value}')}: {message}"


def _warn_keys(program: Program) -> Iterator[str]:
    for argument in program.arguments:
        if not program.own_config and (problem := describe_key(argument)):
            yield _format_warning(argument, problem)


def describe_key(argument: Argument) -> str | None:
    """Describe the problem of a key that verl's config does not contain; None if it does.

    Hydra ends with an error for such a key. A + adds it, and verl ignores it.
    """
    mapped = load_mapping()
    names = [each.key for each in mapped.verl if not each.is_group]
    if argument.key.startswith("hydra.") or "@" in argument.key or "/" in argument.key:
        return None
    setting = find(argument.key, mapped.verl)
    if argument.prefix:
        is_contained = setting is not None and not setting.is_group and setting.in_config
        return (
            "Hydra cannot add a key that verl's config contains; remove the +"
            if argument.prefix == "+" and is_contained
            else None
        )
    if setting is not None and setting.renamed:
        return f"verl {mapped.verl_version} has {setting.renamed} instead"
    if setting is not None or _is_block(argument.key, mapped):
        return None
    meant = find_nearest_word(argument.key, names, max_distance=max(2, len(argument.key) // 8)) or next(
        (name for name in names if name.rpartition(".")[2] == argument.key.rpartition(".")[2]), None
    )
    hint = f"did you mean {meant}?" if meant else "remove it, or put a + before it if a plugin reads it"
    return f"is not a key of verl {mapped.verl_version}; {hint}"


def _is_block(key: str, mapped: Mapped) -> bool:
    return any(each.key.startswith(f"{key}.") for each in mapped.verl)


def _warn_sizes(program: Program) -> Iterator[str]:
    numbers = {key: read_verl_number(program, key) for key in (NODES, DEVICES, BATCH, MINI, RESPONSES)}
    nodes, devices, batch, mini, responses = numbers.values()
    given = program.given
    total = nodes * devices if nodes and devices else 0
    parallel = read_verl_number(program, SEQUENCE_PARALLEL) or 1
    actors = total // parallel if total % parallel == 0 else 0
    if batch and mini and (MINI in given or BATCH in given):
        yield from _warn_mini_batch(given.get(MINI) or given[BATCH], batch, mini, responses or 1, actors or 1)
    if MICRO in given and OLD_MICRO in given:
        yield _format_warning(given[OLD_MICRO], f"verl accepts only one of it and {MICRO}; remove it")
    if not total:
        return
    if program.values.get(DYNAMIC) is True:
        return
    if batch and responses and BATCH in given and batch * responses % total:
        yield _format_warning(
            given[BATCH],
            f"{batch} prompts x {responses} responses are not divisible by the {total} accelerators, as verl asserts; "
            f"use {join_or(nearest_multiples(batch, total // gcd(total, responses)))}",
        )
    micro = program.values.get(MICRO)
    if isinstance(micro, int) and micro > 0 and mini and responses and actors:
        share = mini * responses // actors
        if share and share % micro and share > micro:
            message = (
                f"does not divide the {share} responses of a device in a mini-batch ({mini} x {responses} / {total}); "
                f"use {join_or(nearest_divisors(micro, share))}"
            )
            yield _format_warning(given[MICRO], message)
    for key in (SEQUENCE_PARALLEL, FSDP_SIZE):
        size = program.values.get(key)
        if isinstance(size, int) and size > 0 and total % size:
            nearest = join_or(nearest_divisors(size, total))
            yield _format_warning(
                given[key], f"does not divide the {total} accelerators of the training; use {nearest}"
            )


def _warn_mini_batch(argument: Argument, batch: int, mini: int, responses: int, actors: int) -> Iterator[str]:
    """The mini-batches divide the batch, and the actors divide the responses of a mini-batch."""
    fitting = nearest_divisors(mini, batch, multiple_of=actors // gcd(actors, responses))
    fix = f"; use {MINI}={join_or(fitting)}" if fitting else ""
    if mini > batch:
        yield _format_warning(argument, f"verl needs ppo_mini_batch_size {mini} <= train_batch_size {batch}{fix}")
    elif batch % mini:
        yield _format_warning(
            argument, f"verl needs ppo_mini_batch_size {mini} to divide train_batch_size {batch}{fix}"
        )
    elif mini * responses % actors:
        product = f"{mini} prompts x {responses} responses of a mini-batch"
        yield _format_warning(argument, f"{product} are not divisible by the {actors} actors, as verl asserts{fix}")


def _warn_unequal_shards(program: Program) -> Iterator[str]:
    """The actor and the reference model are in the same workers."""
    for name in SHARED:
        actor = f"actor_rollout_ref.actor.{name}"
        ref = f"actor_rollout_ref.ref.{name}"
        if {actor, ref} <= program.values.keys() and program.values[actor] != program.values[ref]:
            value = program.values[actor]
            yield _format_warning(
                program.given[ref], f"{actor} is {value}, and the same workers have both models; use {value}"
            )


def _warn_engine(program: Program) -> Iterator[str]:
    """The share of the device and the length of a sequence."""
    share = program.values.get(UTILIZATION)
    if isinstance(share, int | float) and not 0 < share <= 1:
        yield _format_warning(program.given[UTILIZATION], "is a share of the device: it must be above 0 and at most 1")
    keys = [key if key in program.given else default for key, default in LENGTHS.items()]
    prompt, response = (read_verl_number(program, key) for key in keys)
    length = program.values.get(MAX_LENGTH)
    if isinstance(length, int) and prompt and response and length < prompt + response:
        message = f"is less than {keys[0]} {prompt} + {keys[1]} {response}; use {prompt + response} or more"
        yield _format_warning(program.given[MAX_LENGTH], message)


def _warn_separate_devices(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """The devices of the training and of the engines are different."""
    keys = (NODES, DEVICES, ROLLOUT_NODES, ROLLOUT_DEVICES)
    nodes, devices, rollout_nodes, rollout_devices = (program.values.get(key) for key in keys)
    total = count_devices(spec.cluster.workers)
    if not (isinstance(nodes, int) and isinstance(devices, int) and total):
        return
    if not (isinstance(rollout_nodes, int) and isinstance(rollout_devices, int)):
        return
    needed = nodes * devices + rollout_nodes * rollout_devices
    if needed != total:
        problem = "verl waits for the others" if needed > total else f"{total - needed} are not used"
        yield (
            f"{COMMAND}: {NODES}={nodes}, {DEVICES}={devices}, {ROLLOUT_NODES}={rollout_nodes}, "
            f"{ROLLOUT_DEVICES}={rollout_devices}: training and engines need {needed} accelerators, and the job has "
            f"{total} ({describe_groups(spec.cluster.workers)}): {problem}"
        )


def _warn_idle_devices(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    total = count_devices(spec.cluster.workers)
    separate = program.values.get("actor_rollout_ref.rollout.nnodes")
    if nodes and devices and not separate and nodes * devices < total:
        yield (
            f"{COMMAND}: {NODES}={nodes}, {DEVICES}={devices}: {total - nodes * devices} of the {total} accelerators "
            f"are not used ({describe_groups(spec.cluster.workers)})"
        )


def _warn_contradictions(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    values = program.values
    given = program.given
    for key in PATHS:
        path = values.get(key)
        if isinstance(path, str) and path.startswith("/") and (problem := describe_missing_volume(path, spec)):
            yield _format_warning(given[key], problem)
    logger = values.get("trainer.logger")
    if isinstance(logger, str) and "console" not in logger:
        yield _format_warning(
            given["trainer.logger"], "without console, the status of the job has no progress and no metrics"
        )
    folder = values.get("trainer.default_local_dir")
    mount = spec.storage.mount_path
    if isinstance(folder, str) and spec.storage.outlives_pods and not f"{folder}/".startswith(f"{mount.rstrip('/')}/"):
        yield _format_warning(
            given["trainer.default_local_dir"], f"is not below spec.storage.mountPath {mount}: checkpoints are lost"
        )
    if values.get("trainer.resume_mode") == "disable" and spec.failure_policy.max_restarts > 0:
        restarts = f"spec.failurePolicy.maxRestarts is {spec.failure_policy.max_restarts}"
        yield _format_warning(
            given["trainer.resume_mode"], f"{restarts}, and each attempt starts from step 0; use auto"
        )
    steps = values.get("trainer.total_training_steps")
    if isinstance(steps, int) and spec.framework.total_steps not in (None, steps):
        yield _format_warning(
            given["trainer.total_training_steps"], f"spec.framework.totalSteps is {spec.framework.total_steps}"
        )
    cpus = values.get("ray_kwargs.ray_init.num_cpus")
    if cpus is not None:
        yield _format_warning(
            given["ray_kwargs.ray_init.num_cpus"], "Ray already runs; use spec.cluster.workers[].numCpus"
        )
