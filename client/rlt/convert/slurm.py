"""The #SBATCH lines of a script and the options of sbatch and srun, as fields of a job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from rlt.convert.draft import ConvertError, Draft
from rlt_api.frameworks.mapping import load_mapping

DIRECTIVE = re.compile(r"\s*#SBATCH\s+(.*)")
LONG = {
    "-J": "--job-name", "-N": "--nodes", "-t": "--time", "-c": "--cpus-per-task", "-o": "--output", "-e": "--error",
    "-w": "--nodelist", "-n": "--ntasks", "-p": "--partition", "-A": "--account", "-G": "--gpus", "-x": "--exclude",
    "-q": "--qos", "-C": "--constraint", "-D": "--chdir", "-d": "--dependency",
}  # fmt: skip
"""Short option -> long option (sbatch(1))."""
QUEUE = "Slurm's queues do not exist: set spec.scheduling.queueName for Kueue"
REASONS = {
    "--exclusive": "the pods have their own devices, CPUs and memory",
    "--requeue": "spec.failurePolicy.maxRestarts restarts the job",
    "--no-requeue": "spec.failurePolicy.maxRestarts restarts the job",
    "--mem": "it is not an amount: set spec.cluster.workers[].resources.memory",
    "--constraint": "use spec.cluster.workers[].nodeSelector",
    "--exclude": "use spec.cluster.workers[].podTemplate with a node affinity",
    "--chdir": "use spec.framework.workingDirectory",
    "--dependency": "a job starts when its queue admits it",
    "--signal": "a suspended job saves a checkpoint: spec.checkpoint",
}
WORKERS = "spec.cluster.workers[]"
GPUS = re.compile(r"(?:^|,)(?:gpu|gres/gpu)?:?(?:[A-Za-z_][\w.-]*:)?(\d+)(?:\(.*\))?(?=,|$)")
AMD = re.compile(r"\bmi\d{2,3}", re.IGNORECASE)


@dataclass(frozen=True)
class Option:
    """An option of sbatch, its value and line, and the command that has it."""

    value: str
    line: int
    source: str = "#SBATCH"

    def describe(self, name: str) -> str:
        """The option as a comment has it."""
        return f"{self.source} {name}={self.value}" if self.value else f"{self.source} {name}"


def read_directives(text: str) -> dict[str, Option]:
    """Long option -> value and line. A line can have several options."""
    found: dict[str, Option] = {}
    for line, content in enumerate(text.splitlines(), 1):
        if match := DIRECTIVE.match(content):
            words = _split(match[1], line)
            while words:
                option, equals, value = words.pop(0).partition("=")
                if not option.startswith("-"):
                    continue
                if not option.startswith("--"):
                    value = option[2:] + equals + value
                    option = option[:2]
                while words and not words[0].startswith("-"):
                    value = f"{value} {words.pop(0)}".strip()
                found[LONG.get(option, option)] = Option(value, line)
    return found


def _split(text: str, line: int) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ConvertError(f"line {line}: {error}: correct the options of #SBATCH.") from error


def build_variables(directives: Mapping[str, Option]) -> dict[str, str]:
    """The variables that Slurm sets from the options (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""
    given = {
        "SLURM_NNODES": "--nodes", "SLURM_JOB_NUM_NODES": "--nodes", "SLURM_GPUS_PER_NODE": "--gpus-per-node",
        "SLURM_CPUS_PER_TASK": "--cpus-per-task", "SLURM_JOB_NAME": "--job-name", "SLURM_NTASKS": "--ntasks",
        "SLURM_NTASKS_PER_NODE": "--ntasks-per-node", "SLURM_GPUS": "--gpus",
    }  # fmt: skip
    found = {variable: directives[option].value for variable, option in given.items() if option in directives}
    if "SLURM_GPUS_PER_NODE" in found and (count := count_gpus(found["SLURM_GPUS_PER_NODE"])):
        found["SLURM_GPUS_PER_NODE"] = found["SLURM_GPUS_ON_NODE"] = str(count)
    elif "--gres" in directives and (count := count_gpus(directives["--gres"].value)):
        found["SLURM_GPUS_ON_NODE"] = str(count)
    return found


def count_gpus(value: str) -> int | None:
    """The devices of --gres, --gpus or --gpus-per-node: 8, gpu:8, gpu:h100:8 or a list with one of these."""
    if value in ("gpu", "gres/gpu"):
        return 1
    found = [match for part in value.split(",") if (match := GPUS.fullmatch(part))]
    found = [match for match in found if len(found) == 1 or match[0].startswith(("gpu", "gres/gpu"))]
    return int(found[0][1]) if found else None


def _number(directives: Mapping[str, Option], name: str) -> int | None:
    match = re.match(r"\d+", directives[name].value) if name in directives else None
    return int(match[0]) if match else None


def count_nodes(directives: Mapping[str, Option]) -> int | None:
    """Nodes of the options: --nodes, or --ntasks by --ntasks-per-node."""
    nodes = _number(directives, "--nodes")
    tasks = _number(directives, "--ntasks")
    per_node = _number(directives, "--ntasks-per-node")
    if nodes is None and tasks and per_node:
        return -(-tasks // per_node)
    return nodes


def count_devices(directives: Mapping[str, Option]) -> int | None:
    """Devices per node of the options."""
    for name in ("--gpus-per-node", "--gres"):
        if name in directives and (count := count_gpus(directives[name].value)):
            return count
    nodes = count_nodes(directives) or 1
    if "--gpus" in directives and (count := count_gpus(directives["--gpus"].value)):
        return max(1, count // nodes)
    if "--gpus-per-task" in directives and (count := count_gpus(directives["--gpus-per-task"].value)):
        return count * (_number(directives, "--ntasks-per-node") or 1)
    return None


def apply_directives(draft: Draft, directives: Mapping[str, Option]) -> None:
    """Carry over nodes, devices, CPUs, memory, time and name."""
    if nodes := count_nodes(directives):
        draft.put(f"{WORKERS}.replicas", nodes)
    devices = count_devices(directives)
    if devices:
        draft.put(f"{WORKERS}.accelerator.count", devices)
    cpus = _count_cpus(directives, devices)
    if cpus:
        draft.put(f"{WORKERS}.resources.cpu", str(cpus))
    if memory := _read_memory(directives, cpus, devices):
        draft.put(f"{WORKERS}.resources.memory", memory)
    for name, option in directives.items():
        _apply_option(draft, name, option, used=(bool(cpus), bool(memory)))


def _apply_option(draft: Draft, name: str, option: Option, used: tuple[bool, bool]) -> None:
    what = option.describe(name)
    if name in ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task") and AMD.search(option.value):
        draft.put(f"{WORKERS}.accelerator.resourceName", "amd.com/gpu")
    if name == "--job-name":
        draft.name = option.value
        if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", option.value):
            draft.leave_out(what, "metadata.name has the characters that Kubernetes allows", option.line)
    elif name == "--time" and (seconds := parse_time(option.value)):
        draft.put("activeDeadlineSeconds", seconds)
    elif name == "--nodes" and re.fullmatch(r"\d+", option.value):
        return
    elif name in ("--gpus-per-node", "--gres", "--gpus", "--gpus-per-task") and count_gpus(option.value):
        if not re.fullmatch(r"(gpu:)?\d+", option.value):
            draft.leave_out(
                what, "its number is carried over: use nodeSelector for the type of the devices", option.line
            )
    elif (name in ("--cpus-per-task", "--cpus-per-gpu") and used[0]) or (name.startswith("--mem") and used[1]):
        return
    elif name in ("--partition", "--account", "--qos", "--reservation"):
        draft.leave_out(what, QUEUE, option.line)
    else:
        draft.leave_out(what, REASONS.get(name) or _explain(name), option.line)


def _count_cpus(directives: Mapping[str, Option], devices: int | None) -> int | None:
    """CPUs per node: CPUs per task times tasks per node, or CPUs per device times devices."""
    per_task = _number(directives, "--cpus-per-task")
    per_device = _number(directives, "--cpus-per-gpu")
    if per_task:
        return per_task * (_number(directives, "--ntasks-per-node") or 1)
    return per_device * devices if per_device and devices else None


def _read_memory(directives: Mapping[str, Option], cpus: int | None, devices: int | None) -> str | None:
    """Memory per node. 0 is all memory of the node: None."""
    for name, factor in (("--mem", 1), ("--mem-per-cpu", cpus), ("--mem-per-gpu", devices)):
        if name in directives and factor:
            match = re.fullmatch(r"(\d+)([KMGT]?)B?", directives[name].value.upper())
            if match and int(match[1]):
                return f"{int(match[1]) * factor}{match[2] or 'M'}i"
    return None


def parse_time(value: str) -> int | None:
    """Seconds of Slurm's time: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value)
    if match is None:
        return None
    days, *parts = (int(part) if part else 0 for part in match.groups())
    if match[1] is not None or match[4] is not None:
        hours, minutes, seconds = parts
    else:
        hours = 0
        minutes = parts[0]
        seconds = parts[1]
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _explain(option: str) -> str:
    """The field or the reason in mapping.toml."""
    found = next((each for each in load_mapping().launch if option in each.key.replace(",", "").split()), None)
    if found is None:
        return "no counterpart"
    return f"use {', '.join(found.fields)}" if found.fields else found.reason.rstrip(".")
