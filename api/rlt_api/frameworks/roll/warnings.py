"""Warnings about commands that start ROLL. Its settings are in a file of the image or a volume, which the pods read."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import printable
from rlt_api.frameworks.roll.script import find_roll_script
from rlt_api.frameworks.roll.settings import LAUNCHER
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import PROGRAMS_PATH


def warn_roll_command(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about a command that starts a pipeline of ROLL."""
    command = spec.framework.command or []
    found = find_roll_script(command)
    if found is None:
        return
    index, script = found
    if not any(LAUNCHER in item for item in command):
        launcher = f"python3 {PROGRAMS_PATH} {LAUNCHER} --config FILE"
        yield (
            f"spec.framework.command[{index}]: {printable(script)}: ROLL's driver needs a machine with devices, and "
            f"the command runs on the head, which has none; start it with {launcher} -- python3 SCRIPT, without "
            "--config_path and --config_name"
        )
    groups = enumerate(spec.cluster.workers)
    counts = {index: group.accelerator.count for index, group in groups if group.accelerator}
    most = max(counts.values(), default=0)
    for index, count in counts.items():
        if count < most:
            field = f"spec.cluster.workers[{index}].accelerator.count"
            yield f"{field}: {count}: all nodes of ROLL have the same number of devices; use {most}"
