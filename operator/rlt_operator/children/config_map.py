"""The ConfigMap with the training config that the trainer reads."""

from __future__ import annotations

from rlt_api.model import quantity_value
from rlt_api.spec import Reward, RLTrainingJobSpec
from rlt_api.training_config import CONFIG_FILE, PRESET_REWARD, TrainingConfig
from rlt_operator import names
from rlt_operator.children.ownership import metadata
from rlt_operator.observation import Job, Manifest


def config_map(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """The ConfigMap of a job with the builtin framework."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, names.config_map(job.name)),
        "data": {CONFIG_FILE: training_config(job, spec).model_dump_json(by_alias=True, exclude_none=True, indent=2)},
    }


def training_config(job: Job, spec: RLTrainingJobSpec) -> TrainingConfig:
    """The training config with all defaults filled in. The rules have made sure that nothing is missing."""
    assert spec.model
    assert spec.data
    assert spec.training
    mini_batch = spec.training.ppo_mini_batch_size or spec.training.train_batch_size
    (workers,) = spec.cluster.workers
    return TrainingConfig(
        job=job.name,
        namespace=job.namespace,
        run_directory=names.run_directory(job.name, uid=job.uid, spec=spec),
        workers=workers.replicas,
        devices_per_worker=workers.accelerator.count if workers.accelerator else 0,
        cpus_per_worker=max(1, int(quantity_value(workers.resources.cpu))),
        model=spec.model,
        data=spec.data,
        rewards=spec.rewards or [Reward(name=PRESET_REWARD[spec.data.preset])],
        algorithm=spec.algorithm,
        training=spec.training.model_copy(update={"ppo_mini_batch_size": mini_batch}),
        rollout=spec.rollout,
        checkpoint=spec.checkpoint,
    )
