"""A job as a process of this machine: the same config or command, the storage being a folder here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import CONFIG_FILE, TrainingConfig
from rlt_core import names
from rlt_core.children.config_map import build_training_config
from rlt_core.entrypoint import build_run_command_arguments
from rlt_core.job import Job


@dataclass(frozen=True)
class LocalRun:
    """What to start, and with what."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Beyond this process's own."""
    config: TrainingConfig | None = None
    """The trainer's. None for a command."""
    config_file: Path | None = None
    """Where the trainer reads it."""
    from_the_cluster: tuple[str, ...] = ()
    """Environment variables whose values are in the cluster's Secrets and ConfigMaps."""


def local_run(job: Job, spec: RLTrainingJobSpec, directory: Path) -> LocalRun:
    """The process of a job. What is below storage.mountPath is below `directory`, which is absolute."""
    mount = names.mount_path(spec).rstrip("/")

    def here(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: here(child) for key, child in value.items()}
        if isinstance(value, list):
            return [here(child) for child in value]
        if isinstance(value, str) and f"{value}/".startswith(f"{mount}/"):
            return str(directory) + value[len(mount) :]
        return value

    environment = {each.name: here(each.value) for each in spec.cluster.env if each.value is not None}
    elsewhere = tuple(each.name for each in spec.cluster.env if each.value is None)
    if spec.framework.type == "builtin":
        config = TrainingConfig.model_validate(here(build_training_config(job, spec).to_json()))
        file = Path(config.run_directory) / CONFIG_FILE
        trainer = (sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local")
        return LocalRun(trainer, environment, config, file, elsewhere)
    arguments = ("--port", "0", *here(build_run_command_arguments(job, spec.framework)))
    program = (sys.executable, "-m", "rlt_core.command.run_command", *arguments)
    return LocalRun(program, environment, from_the_cluster=elsewhere)
