"""The #SBATCH lines of a script, as fields of a job."""

from __future__ import annotations

import re
import shlex

from rlt.convert.draft import ConvertError, Draft
from rlt_api.frameworks.mapping import load_mapping

DIRECTIVE = re.compile(r"\s*#SBATCH\s+(.*)")
LONG = {
    "-J": "--job-name", "-N": "--nodes", "-t": "--time", "-c": "--cpus-per-task", "-o": "--output", "-e": "--error",
    "-w": "--nodelist", "-n": "--ntasks", "-p": "--partition", "-A": "--account", "-G": "--gpus",
}  # fmt: skip
"""Short option -> long option (sbatch(1))."""
QUEUE = "Slurm's queues do not exist: set spec.scheduling.queueName for Kueue"


def read_directives(text: str) -> dict[str, tuple[str, int]]:
    """Long option -> value and line. A line can have several options."""
    found: dict[str, tuple[str, int]] = {}
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
                if not value and words and not words[0].startswith("-"):
                    value = words.pop(0)
                found[LONG.get(option, option)] = (value, line)
    return found


def _split(text: str, line: int) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise ConvertError(f"line {line}: {error}: correct the options of #SBATCH.") from error


def build_variables(directives: dict[str, tuple[str, int]]) -> dict[str, str]:
    """The variables that Slurm sets from the options (sbatch(1), OUTPUT ENVIRONMENT VARIABLES)."""
    given = {
        "SLURM_NNODES": "--nodes", "SLURM_JOB_NUM_NODES": "--nodes", "SLURM_GPUS_PER_NODE": "--gpus-per-node",
        "SLURM_CPUS_PER_TASK": "--cpus-per-task", "SLURM_JOB_NAME": "--job-name", "SLURM_NTASKS": "--ntasks",
        "SLURM_NTASKS_PER_NODE": "--ntasks-per-node",
    }  # fmt: skip
    return {variable: directives[option][0] for variable, option in given.items() if option in directives}


def apply_directives(draft: Draft, directives: dict[str, tuple[str, int]]) -> None:
    """Carry over nodes, devices, CPUs, memory, time and name."""
    workers = "spec.cluster.workers[]"
    for option, (value, line) in directives.items():
        what = f"#SBATCH {option}={value}"
        gpus = re.fullmatch(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)", value)
        memory = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
        if option == "--job-name":
            draft.name = value
        elif option == "--nodes" and value.isdigit():
            draft.put(f"{workers}.replicas", int(value))
        elif option in ("--gpus-per-node", "--gres") and gpus:
            draft.put(f"{workers}.accelerator.count", int(gpus[1]))
        elif option == "--cpus-per-task" and value.isdigit():
            tasks = directives.get("--ntasks-per-node", ("1", 0))[0]
            draft.put(f"{workers}.resources.cpu", str(int(value) * (int(tasks) if tasks.isdigit() else 1)))
        elif option == "--mem" and memory and int(memory[1]):
            draft.put(f"{workers}.resources.memory", f"{memory[1]}{memory[2] or 'M'}i")
        elif option == "--time" and (seconds := parse_time(value)):
            draft.put("activeDeadlineSeconds", seconds)
        elif option in ("--partition", "--account", "--qos"):
            draft.leave_out(what, QUEUE, line)
        else:
            draft.leave_out(what, _explain(option), line)


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
