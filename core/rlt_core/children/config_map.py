"""The ConfigMap that the pods mount: the training config, and the programs that run in the image of the job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.roll import settings as roll
from rlt_api.model import quantity_value
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_FILE, ResolvedTraining, TrainingConfig, dump_config
from rlt_api.spec.worker_groups import rollout_group, training_group
from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.children.preflight_file import TRIAL_DIRECTORY, build_expected, get_level, has_preflight
from rlt_core.children.preflight_roll import STARTS, dump_trial_configs
from rlt_core.children.program import build_run
from rlt_core.job import Job, Manifest
from rlt_pod.preflight.expected import EXPECTED_FILE, dump_expected

RUN_COMMAND = "run_command.py"
"""The program that runs the user's command or the trainer, in CONFIG_DIRECTORY."""
POD_HOOKS = "pod_hooks.py"
"""The program of the pods' lifecycle hooks, in CONFIG_DIRECTORY."""
DUMP_STACKS = "dump_stacks.py"
"""The program that writes the stacks of all processes, in CONFIG_DIRECTORY."""
PREFLIGHT = "preflight.py"
"""The program of the preflight checks, in CONFIG_DIRECTORY."""

PROGRAMS = {RUN_COMMAND: "command/run_command.py", POD_HOOKS: "hooks.py", DUMP_STACKS: "dump_stacks.py"}
"""Program in CONFIG_DIRECTORY -> its source in rlt_pod."""
ROLL_SOURCES = {"command/run_roll.py", "command/roll_layout.py"}
"""Sources in rlt_pod that frameworks roll and command alone need."""


def build_config_map(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the ConfigMap of a job."""
    data = {_config_map_key(path): _read_source(source) for path, source in list_program_files(spec).items()}
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


def list_program_files(spec: RLTrainingJobSpec) -> dict[str, str]:
    """List the files of the job's programs: path in CONFIG_DIRECTORY -> source in rlt_pod."""
    programs = dict(PROGRAMS)
    sources = {"__init__.py", "keep_logs.py", *_list_modules("report"), *_list_modules("command")}
    if has_preflight(spec):
        programs[PREFLIGHT] = "preflight/run.py"
        sources |= _list_modules("preflight")
    if spec.framework.type in ("roll", "command"):
        programs[roll.LAUNCHER] = "command/run_roll.py"
    else:
        sources -= ROLL_SOURCES
    modules = sorted(sources - set(programs.values()))
    return {**programs, **{f"rlt_pod/{source}": source for source in modules}}


def digest_data(data: Mapping[str, str]) -> dict[str, str]:
    """Key -> digest of a ConfigMap's data."""
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
def _list_modules(folder: str) -> frozenset[str]:
    """The modules below a folder of rlt_pod."""
    return frozenset(_walk(resources.files("rlt_pod") / folder, folder))


def _walk(folder: Traversable, path: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{path}/{entry.name}")
        elif entry.name.endswith(".py"):
            yield f"{path}/{entry.name}"


@cache
def _read_source(path: str) -> str:
    return resources.files("rlt_pod").joinpath(path).read_text(encoding="utf-8")


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
