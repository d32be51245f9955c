"""A job as a process on this machine: the same config or command, with a local directory as the storage."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_api.frameworks.builtin.training_config import build_training_config
from rlt_api.frameworks.registry import get_framework
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_FILE, TrainingConfig
from rlt_core import names
from rlt_core.children.program import build_run
from rlt_core.entrypoint import build_run_command_arguments
from rlt_core.job import Job


@dataclass(frozen=True)
class LocalRun:
    """The process to start."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Additions to the environment of this process."""
    run_directory: Path
    """The directory with the records of the run."""
    total_steps: int | None = None
    """Number of steps. None if the spec does not have it."""
    config: TrainingConfig | None = None
    """The trainer's config. None for other frameworks."""
    config_file: Path | None = None
    """The file from which the trainer reads the config."""
    secret_variables: tuple[str, ...] = ()
    """Environment variables whose values are in Secrets and ConfigMaps of the cluster."""
    notes: tuple[str, ...] = ()
    """What the process does not do."""


def build_local_run(job: Job, spec: RLTrainingJobSpec, directory: Path) -> LocalRun:
    """Build the process of a job. Paths below storage.mountPath become paths below `directory`, which is absolute."""
    mount = names.mount_path(spec).rstrip("/")

    def localize(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: localize(child) for key, child in value.items()}
        if isinstance(value, list):
            return [localize(child) for child in value]
        if isinstance(value, str) and f"{value}/".startswith(f"{mount}/"):
            return str(directory) + value[len(mount) :]
        return value

    run_directory = Path(localize(names.run_directory(job.name, uid=job.uid, spec=spec)))
    environment = {each.name: localize(each.value) for each in spec.cluster.env if each.value is not None}
    secret_variables = tuple(each.name for each in spec.cluster.env if each.value is None)
    notes = tuple(
        f"step {step.name} of framework.prepare is not run: run its command before, if necessary"
        for step in spec.framework.prepare
    )
    if spec.framework.runtime_env:
        notes += ("framework.runtimeEnv is not applied: the command has the Python environment of this shell",)
    total = spec.training.total_steps or spec.framework.total_steps
    if get_framework(spec).reports_progress:
        config = TrainingConfig.model_validate(localize(build_training_config(spec, build_run(job, spec)).to_json()))
        file = run_directory / CONFIG_FILE
        trainer = (sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local")
        return LocalRun(trainer, environment, run_directory, total, config, file, secret_variables, notes)
    # A path in an argument may follow its name, or be in a list: data.train_files=[/mnt/rlt/a.parquet]
    path = re.compile(rf"(^|[=\[,\"]){re.escape(mount)}(?=[/,\]\"]|$)")
    words = build_run_command_arguments(job, spec, on_a_worker=False)
    arguments = ("--port", "0", *(path.sub(lambda found: found[1] + str(directory), word) for word in words))
    program = (sys.executable, "-m", "rlt_pod.command.run_command", *arguments)
    return LocalRun(program, environment, run_directory, total, secret_variables=secret_variables, notes=notes)
