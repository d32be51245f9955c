"""Launchers of several machines in a command, which runs once, on the head."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from rlt_api.findings.finding import Finding, printable
from rlt_api.frameworks.command.shell_words import runs_in_shell
from rlt_api.spec.job_spec import RLTrainingJobSpec

COMMAND = "spec.framework.command"
MACHINES: Mapping[str, tuple[str, ...]] = {
    "torchrun": ("--nnodes",),
    "torch.distributed.run": ("--nnodes",),
    "torch.distributed.launch": ("--nnodes",),
    "accelerate": ("--num_machines", "--num-machines"),
    "deepspeed": ("--num_nodes", "--hostfile", "-H"),
    "sglang.launch_server": ("--nnodes",),
    "vllm": ("--nnodes", "-n"),
    "ds": ("--num_nodes", "--hostfile"),
    "colossalai": ("--hostfile", "--host"),
}
"""Launcher -> its options with the number or the list of machines."""
PROCESSES = ("--nproc_per_node", "--nproc-per-node", "--num_processes", "--num-processes", "--num_gpus")
OF_A_SCHEDULER = ("srun", "sbatch", "salloc", "mpirun", "mpiexec", "horovodrun")
FIX = "start the processes as Ray actors, or use one pod"


def read_words(command: Sequence[str]) -> list[tuple[int, str]]:
    """Return the words of a command and of a script in it, each with its item. A script that does not parse has
    none."""
    if not runs_in_shell(command):
        return list(enumerate(command))
    words = []
    for index, item in enumerate(command):
        try:
            words += [(index, word) for word in shlex.split(item, comments=True)]
        except ValueError:
            continue
    return words


def validate_launchers(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """framework.command runs once, on the head: a launcher such as torchrun --nnodes=2 would wait for the other
    machines."""
    words = read_words(spec.framework.command or [])
    for position, (index, word) in enumerate(words):
        options = MACHINES.get(word.rpartition("/")[2])
        if options is None:
            continue
        for name, value in _read_options(words[position + 1 :], options):
            if _is_more_than_one(value):
                given = printable(f"{word.rpartition('/')[2]} {name}={value}")
                message = "starts one of several machines, and the command runs once, on the head: it waits for others"
                yield Finding(f"{COMMAND}[{index}]", given, message, FIX, rule="command-launcher")
                return


def _find_unknown_machines(words: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the launchers whose number of machines is a variable."""
    for position, (index, word) in enumerate(words):
        options = MACHINES.get(word.rpartition("/")[2], ())
        if any("$" in value for _, value in _read_options(words[position + 1 :], options)):
            yield index, word.rpartition("/")[2]


def warn_launchers(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about programs of a scheduler, another Ray cluster, and processes on the head."""
    words = read_words(spec.framework.command or [])
    names = [word.rpartition("/")[2] for _, word in words]
    for index, name in _find_unknown_machines(words):
        yield (
            f"{COMMAND}[{index}]: {name}: its number of machines is a variable, and the command runs once, on the "
            f"head; {FIX}"
        )
    on_gpus = any(group.accelerator for group in spec.cluster.workers)
    for position, name in enumerate(names):
        index = words[position][0]
        following = names[position + 1] if position + 1 < len(names) else ""
        if name in OF_A_SCHEDULER and (position == 0 or names[position - 1] in ("&&", ";", "exec")):
            yield (
                f"{COMMAND}[{index}]: {name}: starts processes through a scheduler or other machines, and the pods "
                f"have none; {FIX}"
            )
        elif name == "ray" and following in ("start", "up"):
            yield (
                f"{COMMAND}[{index}]: ray {following}: the operator has started Ray on all pods, and another cluster "
                "has none of their accelerators; remove it"
            )
        elif name in MACHINES and on_gpus and next(_read_options(words[position + 1 :], PROCESSES), None):
            yield (
                f"{COMMAND}[{index}]: {name}: starts its processes on the head, which has no accelerators; start the "
                "training as Ray actors, which run on the workers"
            )


def _read_options(words: Sequence[tuple[int, str]], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a launcher with these names: --name=value and --name value."""
    for position, (_, word) in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            yield name, value if equals else (words[position + 1][1] if position + 1 < len(words) else "")
        if word.endswith(".py"):  # the options of the program follow
            return


def _is_more_than_one(value: str) -> bool:
    """Whether a number, the minimum of MIN:MAX, or a list of machines is more than one."""
    number = value.partition(":")[0]
    if re.fullmatch(r"[0-9]+", number):
        return int(number) > 1
    return bool(value) and "$" not in value and not value.startswith("-") and value not in ("localhost", "auto")


RULES = (validate_launchers,)
