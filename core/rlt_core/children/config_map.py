"""The ConfigMap that the pods mount: the training config, and the programs that run in the image of the job."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import resources

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks import roll
from rlt_api.model import quantity_value
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.training_config import (
    CONFIG_FILE,
    ResolvedTraining,
    TrainingConfig,
    dump_config,
)
from rlt_api.worker_groups import rollout_group, training_group
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.children.preflight_file import TRIAL_DIRECTORY, build_expected, get_level, has_preflight
from rlt_core.children.preflight_roll import STARTS, dump_trial_configs
from rlt_core.children.program import build_run
from rlt_core.job import Job, Manifest
from rlt_core.preflight.expected import EXPECTED_FILE, dump_expected

RUN_COMMAND = "run_command.py"
"""The program that runs the user's command or the trainer, in CONFIG_DIRECTORY."""
POD_HOOKS = "pod_hooks.py"
"""The program of the pods' lifecycle hooks, in CONFIG_DIRECTORY."""
DUMP_STACKS = "dump_stacks.py"
"""The program that writes the stacks of all processes, in CONFIG_DIRECTORY."""
PREFLIGHT = "preflight.py"
"""The program of the preflight checks, in CONFIG_DIRECTORY."""

PROGRAM_FILES = {
    RUN_COMMAND: ("rlt_core", "command", "run_command.py"),
    POD_HOOKS: ("rlt_core", "pod_hooks.py"),
    DUMP_STACKS: ("rlt_core", "dump_stacks.py"),
    **{
        "/".join(module): module
        for module in (
            ("rlt_core", "__init__.py"),
            ("rlt_core", "keep_logs.py"),
            ("rlt_core", "command", "__init__.py"),
            ("rlt_core", "command", "checkpoints.py"),
            ("rlt_core", "command", "console.py"),
            ("rlt_core", "command", "exposition.py"),
            ("rlt_core", "command", "foreign_lines.py"),
            ("rlt_core", "command", "history.py"),
            ("rlt_core", "command", "log_file.py"),
            ("rlt_core", "command", "nccl_warnings.py"),
            ("rlt_core", "command", "records.py"),
            ("rlt_core", "command", "server.py"),
            ("rlt_core", "command", "verl_rollouts.py"),
            ("rlt_api", "__init__.py"),
            ("rlt_api", "driver_report.py"),
            ("rlt_api", "driver_server.py"),
            ("rlt_api", "kept_logs.py"),
            ("rlt_api", "metric_rules.py"),
            ("rlt_api", "prometheus_names.py"),
            ("rlt_api", "step_history.py"),
            ("rlt_api", "step_line.py"),
        )
    },
}
"""Files of the programs: path in CONFIG_DIRECTORY -> source. Modules keep their names."""
PREFLIGHT_FILES = {
    PREFLIGHT: ("rlt_core", "preflight", "run.py"),
    **{
        "/".join(("rlt_core", "preflight", module)): ("rlt_core", "preflight", module)
        for module in (
            "__init__.py",
            "all_reduce.py",
            "chat_template.py",
            "child.py",
            "collective_checks.py",
            "connections.py",
            "data_checks.py",
            "data_facts.py",
            "engine.py",
            "expected.py",
            "framework_trial.py",
            "full.py",
            "generate_line.py",
            "hub.py",
            "interfaces.py",
            "measure.py",
            "members.py",
            "memory.py",
            "nccl_log.py",
            "network_checks.py",
            "network_facts.py",
            "pairs.py",
            "process.py",
            "rdma.py",
            "result.py",
            "service_checks.py",
            "service_facts.py",
            "shared_folder.py",
            "trial.py",
        )
    },
}
"""The same for a job with preflight checks."""
ROLL_FILES = {
    roll.LAUNCHER: ("rlt_core", "command", "run_roll.py"),
    "rlt_api/frameworks/__init__.py": ("rlt_api", "frameworks", "__init__.py"),
    "rlt_api/frameworks/roll_layout.py": ("rlt_api", "frameworks", "roll_layout.py"),
}
"""The same for frameworks roll and command."""


def build_config_map(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the ConfigMap of a job."""
    data = {_config_map_key(path): _read_source(*module) for path, module in list_program_files(spec).items()}
    if spec.framework.type == "builtin":
        data[CONFIG_FILE] = dump_config(build_training_config(job, spec))
    elif spec.framework.type == "roll":
        data[roll.CONFIG_FILE] = roll.dump_config(spec, build_run(job, spec))
    if _has_trial_configs(spec):
        run = build_run(job, spec)
        data |= dump_trial_configs(spec, replace(run, directory=f"{run.directory}/{TRIAL_DIRECTORY}"))
    if has_preflight(spec):
        data[EXPECTED_FILE] = dump_expected(build_expected(job, spec))
    metadata = build_metadata(job, names.config_map(job.name))
    metadata["annotations"] = {names.HASH_ANNOTATION: compute_hash(digest_data(data))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def list_program_files(spec: RLTrainingJobSpec) -> dict[str, tuple[str, ...]]:
    """List the files of the job's programs: path in CONFIG_DIRECTORY -> source."""
    framework_files = ROLL_FILES if spec.framework.type in ("roll", "command") else {}
    return {**PROGRAM_FILES, **framework_files, **(PREFLIGHT_FILES if has_preflight(spec) else {})}


def has_preflight_program(keys: Collection[str]) -> bool:
    """Whether the ConfigMap with these keys has PREFLIGHT. Earlier versions ran the checks of the trainer's image."""
    return PREFLIGHT in keys


def keeps_program_log(keys: Collection[str]) -> bool:
    """Whether the ConfigMap with these keys has a RUN_COMMAND that keeps the output. Earlier versions had none."""
    return _config_map_key("rlt_core/command/log_file.py") in keys


def serves_records(keys: Collection[str]) -> bool:
    """Whether the ConfigMap with these keys has a RUN_COMMAND that keeps the metrics and serves the run directory."""
    return _config_map_key("rlt_core/command/records.py") in keys


def digest_data(data: Mapping[str, str]) -> dict[str, str]:
    """Key -> digest of the data of a ConfigMap."""
    return {key: sha256(value.encode()).hexdigest() for key, value in data.items()}


def compute_hash(digests: Mapping[str, str]) -> str:
    """Compute the value of HASH_ANNOTATION, which shows whether the data has changed since."""
    return sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def build_config_volume(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the source of the volume: the ConfigMap with each file at its path."""
    paths = list(list_program_files(spec))
    paths += [CONFIG_FILE] if spec.framework.type == "builtin" else []
    paths += [roll.CONFIG_FILE] if spec.framework.type == "roll" else []
    paths += STARTS if _has_trial_configs(spec) else []
    paths += [EXPECTED_FILE] if has_preflight(spec) else []
    items = [{"key": _config_map_key(path), "path": path} for path in paths]
    return {"name": names.config_map(job.name), "items": items}


def _has_trial_configs(spec: RLTrainingJobSpec) -> bool:
    return spec.framework.type == "roll" and get_level(spec) == "full"


def _config_map_key(path: str) -> str:
    return path.replace("/", ".")  # a ConfigMap key cannot contain a slash


@cache
def _read_source(package: str, *path: str) -> str:
    return resources.files(package).joinpath(*path).read_text(encoding="utf-8")


def build_training_config(job: Job, spec: RLTrainingJobSpec) -> TrainingConfig:
    """Build the training config with all defaults. The spec must be valid and resolved."""
    assert spec.model
    assert spec.data
    workers, engines = training_group(spec), rollout_group(spec)
    assert workers.resources
    training = {**spec.training.to_json(), "totalSteps": spec.training.total_steps or 0}
    return TrainingConfig(
        job=job.name,
        namespace=job.namespace,
        run_directory=names.run_directory(job.name, uid=job.uid, spec=spec),
        workers=workers.replicas,
        devices_per_worker=_count_devices(workers),
        cpus_per_worker=_count_cpus(workers),
        rollout_workers=engines.replicas if engines else 0,
        rollout_devices_per_worker=_count_devices(engines) if engines else 0,
        rollout_cpus_per_worker=_count_cpus(engines) if engines else 1,
        model=spec.model,
        data=spec.data,
        rewards=spec.rewards,
        algorithm=spec.algorithm,
        training=ResolvedTraining.model_validate(training),
        rollout=spec.rollout,
        checkpoint=spec.checkpoint,
        observability=spec.observability,
    )


def _count_devices(group: WorkerGroup) -> int:
    return group.accelerator.count if group.accelerator else 0


def _count_cpus(group: WorkerGroup) -> int:
    assert group.resources
    return max(1, int(quantity_value(group.resources.cpu)))
