"""The config of rlt's trainer for a spec."""

from __future__ import annotations

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.frameworks.run import Run
from rlt_api.model import quantity_value
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import CONFIG_FILE, ResolvedTraining, RunBucket, TrainingConfig, dump_config
from rlt_api.spec.worker_groups import rollout_group, training_group


def build_files(spec: RLTrainingJobSpec, run: Run) -> dict[str, str]:
    """Build the file of the config."""
    return {CONFIG_FILE: dump_config(build_training_config(spec, run))}


def build_training_config(spec: RLTrainingJobSpec, run: Run) -> TrainingConfig:
    """Build the training config with all defaults. The spec must be valid and resolved."""
    assert spec.model
    assert spec.data
    workers = training_group(spec)
    engines = rollout_group(spec)
    assert workers.resources
    training = {**spec.training.to_json(), "totalSteps": spec.training.total_steps or 0}
    return TrainingConfig(
        job=run.name,
        namespace=run.namespace,
        run_directory=run.directory,
        bucket=RunBucket(url=run.bucket, endpoint=spec.storage.endpoint) if run.bucket else None,
        workers=workers.replicas,
        devices_per_worker=count_devices(workers),
        cpus_per_worker=count_cpus(workers),
        rollout_workers=engines.replicas if engines else 0,
        min_rollout_workers=engines.min_replicas if engines else None,
        max_rollout_workers=engines.max_replicas if engines else None,
        rollout_devices_per_worker=count_devices(engines) if engines else 0,
        rollout_cpus_per_worker=count_cpus(engines) if engines else 1,
        model=spec.model,
        data=spec.data,
        rewards=spec.rewards,
        algorithm=spec.algorithm,
        training=ResolvedTraining.model_validate(training),
        evaluation=spec.evaluation,
        evaluate_only=spec.evaluate_only,
        rollout=spec.rollout,
        checkpoint=spec.checkpoint,
        observability=spec.observability,
        publish=spec.publish or None,
        image=spec.cluster.image if spec.publish else None,
    )


def count_devices(group: WorkerGroup) -> int:
    """Return the number of accelerators of a pod."""
    return group.accelerator.count if group.accelerator else 0


def count_cpus(group: WorkerGroup) -> int:
    """Return the number of whole CPUs of a pod, at least 1."""
    assert group.resources
    return max(1, int(quantity_value(group.resources.cpu)))
