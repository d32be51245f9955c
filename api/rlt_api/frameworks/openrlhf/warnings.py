"""Warnings about the options of OpenRLHF in framework.command: unknown names, and batches that do not fit its devices.

The sizes are those that OpenRLHF 0.11.2 (cli/train_ppo_ray.py) and DeepSpeed assert at their start.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.factors import join_or, nearest_multiples
from rlt_api.findings.finding import printable
from rlt_api.frameworks.arguments import Program, build_option_key
from rlt_api.frameworks.command.devices import ACTOR, COMMAND
from rlt_api.frameworks.openrlhf.options import describe_option, has_known_options, read_integer
from rlt_api.spec.job_spec import RLTrainingJobSpec

RESPONSES = "rollout.n_samples_per_prompt"
PROMPTS = "rollout.batch_size"
BATCH = "train.batch_size"
MICRO = "train.micro_batch_size"
PARALLEL = ("ds.ring_attn_size", "ds.tensor_parallel_size")
"""Accelerators that share a sequence, and those that share a layer."""
GROUPED = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")
"""Values of algo.advantage.estimator that compare the responses to a prompt."""


def warn_arguments(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about the options of OpenRLHF 0.11."""
    if not has_known_options(program):
        return
    for argument in program.arguments:
        if problem := describe_option(argument.option):
            text = printable(f"--{argument.option}={argument.value}")
            yield f"{COMMAND}[{argument.index}]: {text}: {problem}"
    yield from _warn_sizes(program)


def _warn_sizes(program: Program) -> Iterator[str]:
    responses = read_integer(program, RESPONSES)
    prompts = read_integer(program, PROMPTS)
    if program.values.get("algo_advantage_estimator") in GROUPED and responses == 1:
        estimator = program.values["algo_advantage_estimator"]
        yield f"{_name(program, RESPONSES, 1)}: {estimator} compares the responses to a prompt; use 2 or more"
    nodes, devices = (read_integer(program, name) for name in ACTOR)
    ring, tensor = (read_integer(program, name) for name in PARALLEL)
    if not (nodes and devices and ring and tensor):
        return
    total = nodes * devices
    size = ring * tensor
    if total % size:
        product = f"the product of {' and '.join(f'--{name}' for name in PARALLEL)} does not divide"
        yield f"{COMMAND}: {product} the {total} accelerators of the actor"
        return
    actors = total // size
    rollout_micro = read_integer(program, "rollout.micro_batch_size")
    if responses and prompts and rollout_micro and prompts * responses // rollout_micro < actors:
        yield (
            f"{_name(program, PROMPTS, prompts)}: {prompts * responses} responses in micro-batches of {rollout_micro} "
            f"are fewer than the {actors} actors"
        )
    batch = read_integer(program, BATCH)
    micro = read_integer(program, MICRO)
    if batch and micro and program.values.get("train_dynamic_batch_enable") is not True and batch % (micro * actors):
        nearest = join_or(nearest_multiples(batch, micro * actors))
        yield (
            f"{_name(program, BATCH, batch)}: DeepSpeed needs a multiple of {micro * actors} (--{MICRO} {micro} x "
            f"{actors} actors); use {nearest}"
        )


def _name(program: Program, name: str, value: int) -> str:
    """Name an option with its value, and the item of the command if it has the option."""
    argument = program.given.get(build_option_key(name))
    if argument is None:
        return f"{COMMAND}: --{name}={value}, OpenRLHF's default"
    return f"{COMMAND}[{argument.index}]: --{argument.option}={value}"
