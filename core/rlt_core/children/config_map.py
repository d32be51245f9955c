"""The ConfigMap of a job, which its pods mount: the training config, and what the preflight checks expect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

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
from rlt_core.children.programs import build_programs_source
from rlt_core.job import Job, Manifest
from rlt_pod.preflight.expected import EXPECTED_FILE, dump_expected


def build_config_map(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the ConfigMap of a job."""
    data: dict[str, str] = {}
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


def digest_data(data: Mapping[str, str]) -> dict[str, str]:
    """Key -> digest of a ConfigMap's data."""
    return {key: sha256(value.encode()).hexdigest() for key, value in data.items()}


def compute_hash(digests: Mapping[str, str]) -> str:
    """Compute the value of HASH_ANNOTATION, which shows whether the data has changed since."""
    return sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def build_config_volume(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """Build the projected volume of CONFIG_DIRECTORY: the files of the ConfigMap, and the programs."""
    files = [CONFIG_FILE] if spec.framework.type == "builtin" else []
    files += [roll.CONFIG_FILE] if spec.framework.type == "roll" else []
    files += STARTS if _has_trial_configs(spec) else []
    files += [EXPECTED_FILE] if has_preflight(spec) else []
    items = [{"key": file, "path": file} for file in files]  # not the keys that a user may add
    config = [{"configMap": {"name": names.config_map(job.name), "items": items}}] if items else []
    return {"sources": [*config, build_programs_source()]}


def _has_trial_configs(spec: RLTrainingJobSpec) -> bool:
    return spec.framework.type == "roll" and get_level(spec) == "full"


def build_training_config(job: Job, spec: RLTrainingJobSpec) -> TrainingConfig:
    """Build the training config with all defaults. The spec must be valid and resolved."""
    assert spec.model
    assert spec.data
    workers = training_group(spec)
    engines = rollout_group(spec)
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
