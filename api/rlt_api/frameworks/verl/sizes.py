"""The batches that verl asserts at its start (verl/utils/config.py, verl/workers/config/actor.py) or in its first
update (train_mini_batch in verl/workers/engine_workers.py), for verl 0.9.1.

They are the same for a command and for framework.type verl, whose command line is read like a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from rlt_api.findings.factors import nearest_divisors, nearest_multiples
from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.command.devices import DEVICES, NODES, read_verl_number
from rlt_api.frameworks.command.problem import ALL, Problem
from rlt_api.frameworks.verl.parallel import SIZES, count_shares, read_engine, read_sizes

BATCH = "data.train_batch_size"
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size"
RESPONSES = "actor_rollout_ref.rollout.n"
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
OLD_MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz"
PACKED = "actor_rollout_ref.model.use_remove_padding"
FSDP_SIZE = "actor_rollout_ref.actor.fsdp_config.fsdp_size"


def list_size_problems(program: Program) -> Iterator[Problem]:
    """List the problems of all sizes. Programs with another config have other defaults."""
    if program.own_config:
        return
    yield from list_batch_problems(program)
    yield from _list_micro_batch_problems(program)
    yield from _list_division_problems(program)


def count_program_shares(program: Program) -> int | None:
    """Count the data-parallel shares of a program. None if the devices or a size are unknown."""
    engine = read_engine(program.values)
    keys = (*SIZES[engine], "model_engine")
    if any(key in program.given and key not in program.values for key in keys):
        return None
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    return count_shares(program.values, nodes * devices) if nodes and devices else None


def list_batch_problems(program: Program) -> Iterator[Problem]:
    """List the problems of the batch and the mini-batch."""
    batch = read_verl_number(program, BATCH)
    mini = read_verl_number(program, MINI)
    responses = read_verl_number(program, RESPONSES)
    shares = count_program_shares(program)
    given = program.given
    is_dynamic = program.values.get(DYNAMIC) is True
    is_given = BATCH in given or MINI in given
    if batch and mini and is_given:
        yield from _compare_mini_batch(program, batch, mini, responses or 1, shares or 1)
    if batch and responses and shares and is_given and not is_dynamic:
        yield from _compare_batch(program, batch, responses, shares)


def _compare_mini_batch(program: Program, batch: int, mini: int, responses: int, shares: int) -> Iterator[Problem]:
    """The mini-batches divide the batch, and the shares divide the responses of a mini-batch."""
    key = MINI if MINI in program.given else BATCH
    fitting = tuple(nearest_divisors(mini, batch, multiple_of=shares // gcd(shares, responses)))
    if mini > batch:
        message = f"verl needs ppo_mini_batch_size {mini} <= train_batch_size {batch}"
        since: str | None = "0.9" if program.values.get(DYNAMIC) is True else ALL
        if MINI not in program.given:  # verl's default, which the image may replace
            since = None
        yield Problem(key, message, fitting, MINI, since)
    elif batch % mini:
        message = f"verl needs ppo_mini_batch_size {mini} to divide train_batch_size {batch}"
        yield Problem(key, message, fitting, MINI, "0.9")
    elif mini * responses % shares:
        message = (
            f"{mini} prompts x {responses} responses of a mini-batch are not divisible by the {shares} actors"
            f"{_explain_shares(program)}, as verl asserts"
        )
        yield Problem(key, message, fitting, MINI, "0.9")


def _compare_batch(program: Program, batch: int, responses: int, shares: int) -> Iterator[Problem]:
    """All devices divide the responses of a step, with Megatron the shares x a micro-batch."""
    smallest = shares
    unit = f"{shares} data-parallel shares{_explain_shares(program)}"
    engine = read_engine(program.values)
    if engine == "megatron":
        micro = program.values.get(MICRO)
        if isinstance(micro, int) and micro > 0:
            smallest = shares * micro
            unit = f"{unit} x micro-batches of {micro}"
    else:
        nodes = read_verl_number(program, NODES) or 1
        devices = read_verl_number(program, DEVICES) or 1
        smallest = nodes * devices
        unit = f"{smallest} accelerators"
    if batch * responses % smallest:
        message = f"{batch} prompts x {responses} responses are not divisible by the {unit}, as verl asserts"
        fitting = nearest_multiples(batch, smallest // gcd(smallest, responses))
        yield Problem(BATCH, message, tuple(fitting), since=ALL)


def _explain_shares(program: Program) -> str:
    sizes = read_sizes(program.values)
    if not sizes:
        return ""
    listed = " x ".join(f"{key.rpartition('.')[2]} {size}" for key, size in sizes.items())
    return f" (accelerators / {listed})"


def _list_micro_batch_problems(program: Program) -> Iterator[Problem]:
    """List the problems of the micro-batch."""
    if program.values.get(DYNAMIC) is True:
        return
    if MICRO in program.given and OLD_MICRO in program.given:
        yield Problem(OLD_MICRO, f"verl accepts only one of it and {MICRO}; remove it", since=ALL)
    mini = read_verl_number(program, MINI)
    responses = read_verl_number(program, RESPONSES)
    shares = count_program_shares(program)
    micro = program.values.get(MICRO)
    if not (isinstance(micro, int) and micro > 0 and mini and responses and shares):
        return
    share = mini * responses // shares
    if share and share % micro and share > micro:
        message = f"does not divide the {share} responses of a device in a mini-batch ({mini} x {responses} / {shares})"
        yield Problem(MICRO, message, tuple(nearest_divisors(micro, share)), since="0.9")


def _list_division_problems(program: Program) -> Iterator[Problem]:
    """List the sizes that do not divide the accelerators. FSDP ignores an fsdp_size of all accelerators or more."""
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    total = nodes * devices if nodes and devices else 0
    if total <= 0:
        return
    engine = read_engine(program.values)
    parallel = read_sizes(program.values)
    sizes = dict(parallel)
    fsdp = program.values.get(FSDP_SIZE)
    if engine == "dp" and isinstance(fsdp, int) and 0 < fsdp < total:
        sizes[FSDP_SIZE] = fsdp
    for key, size in sizes.items():
        if total % size:
            message = f"does not divide the {total} accelerators of the training"
            yield Problem(key, message, tuple(nearest_divisors(size, total)), since=ALL)
    if all(total % size == 0 for size in sizes.values()) and total % prod(parallel.values()):
        listed = " x ".join(f"{key.rpartition('.')[2]} {size}" for key, size in parallel.items())
        message = f"{listed} does not divide the {total} accelerators of the training; use smaller sizes"
        yield Problem(next(iter(parallel)), message, since=ALL)
    if engine == "dp" and parallel and program.values.get(PACKED) is False:
        message = f"{next(iter(parallel))} {next(iter(parallel.values()))} needs packed sequences; use true"
        yield Problem(PACKED, message, since=ALL)
