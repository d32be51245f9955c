"""The rules and warnings that known programs share: accelerators, the place of the processes, and a new attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.arguments import Program, build_option_key
from rlt_api.frameworks.command.devices import COMMAND, RULE, count_devices, describe_groups, list_involved
from rlt_api.frameworks.known_program import Demand
from rlt_api.spec.job_spec import RLTrainingJobSpec

ON_A_WORKER = "ray job submit --entrypoint-num-gpus"
PROCESSES = ("num_processes", "nproc_per_node")
"""Options of accelerate and torchrun with the number of processes: in all, and of each node."""
MACHINES = ("num_machines", "nnodes")
"""Their options with the number of nodes."""

Count = Callable[[Program], Demand | None]


def read_number(program: Program, key: str, default: int | None) -> int | None:
    """Return the value of an argument, or the default if it is not given. None if it is not an integer."""
    value = program.values.get(key) if key in program.given else default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_launcher_devices(program: Program) -> Demand | None:
    """Read the number of processes of accelerate or torchrun, each of which has one accelerator. None if it is not
    given."""
    options = _read_options(program)
    machines = next((options[name] for name in MACHINES if name in options), 1)
    if "num_processes" in options:
        total = options["num_processes"]
        return Demand(total, per_pod=total // machines if machines else None, keys=("--num_processes",))
    if "nproc_per_node" in options:
        each = options["nproc_per_node"]
        return Demand(each * machines, per_pod=each, keys=("--nproc-per-node", "--nnodes"))
    return None


def _read_options(program: Program) -> dict[str, int]:
    pairs = {
        build_option_key(word.lstrip("-").partition("=")[0]): word.partition("=")[2] or following
        for word, following in pairwise([*program.launcher, ""])
        if word.startswith("-")
    }
    given = {name: str(value) for name, value in program.values.items()} | pairs
    return {name: int(given[name]) for name in (*PROCESSES, *MACHINES) if given.get(name, "").isdecimal()}


def require_devices(
    count: Count, title: str, then: str = "waits for them"
) -> Callable[[Program, RLTrainingJobSpec], Iterator[Finding]]:
    """Build the rule that the job has the accelerators that a program requests. `then`: what it does without them."""

    def validate(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
        groups = spec.cluster.workers
        demand = count(program)
        total = count_devices(groups)
        maximum = max((group.accelerator.count for group in groups if group.accelerator), default=0)
        if demand is None or not maximum:
            return
        given = describe_groups(groups)
        if demand.per_pod and demand.per_pod > maximum:
            message = f"needs {demand.per_pod} accelerators in a pod, and a pod has {maximum} ({given})"
            fix = f"use {maximum} or fewer in a pod"
        elif demand.total > total:
            engines = f", of these {demand.engines} of the engines" if demand.engines else ""
            message = f"needs {demand.total} accelerators{engines}, and the job has {total} ({given})"
            fix = "use fewer, or more replicas"
        else:
            return
        given_keys = {build_option_key(key): argument for key, argument in program.given.items()}
        named = {key: given_keys.get(build_option_key(key.lstrip("-"))) for key in demand.keys}
        key, argument = next((each for each in named.items() if each[1]), (demand.keys[0], None))
        field = f"{COMMAND}[{argument.index}]" if argument else COMMAND
        value = printable(f"{key}={argument.value}") if argument else f"{key}, with {title}'s default"
        fix = f"{fix}: {', '.join(demand.keys)}"
        yield Finding(field, value, f"{message}: {title} {then}", fix, rule=RULE, involved=list_involved(groups))

    return validate


def warn_on_head(program: Program, spec: RLTrainingJobSpec, title: str, demand: Demand | None) -> Iterator[str]:
    """Warn about a program that does not start its processes with Ray: the command runs on the head."""
    if "--entrypoint-num-gpus" in {word.partition("=")[0] for word in program.launcher}:
        return
    counts = [group.accelerator.count for group in spec.cluster.workers if group.accelerator]
    if not counts:
        return
    needed = demand.per_pod if demand and demand.per_pod else max(counts)
    yield (
        f"{COMMAND}: {title} starts its processes on the machine of the command, which is the head, without "
        f"accelerators; start it on a worker with {ON_A_WORKER} {needed} -- PROGRAM"
    )


def warn_without_resume(saves: str, loads: str, fix: str) -> Callable[[Program, RLTrainingJobSpec], Iterator[str]]:
    """Build the warning about checkpoints that a new attempt does not load.

    `loads`: the argument that loads them. Empty if none does.
    """

    def warn(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
        restarts = spec.failure_policy.max_restarts
        if restarts and saves in program.given and (not loads or loads not in program.given) and not program.own_config:
            field = f"spec.failurePolicy.maxRestarts: {restarts}"
            yield f"{field}: each attempt of the command starts from step 0; {fix}"

    return warn
