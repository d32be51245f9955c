"""Joining and leaving a Ray cluster. The functions import Ray themselves, as in actors.py."""

from __future__ import annotations

import os
import sys

from rlt_api.spec.training_config import ROLLOUT_RESOURCE, TRAIN_RESOURCE, TrainingConfig


def join_ray(config: TrainingConfig, *, local: bool) -> None:
    """Join the Ray cluster. `local`: start Ray on this machine with the resources of the job's cluster."""
    import ray

    # The first error of a worker ends the run. The errors that follow in other workers would hide it.
    os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
    if not local:
        ray.init(address="auto")
        return
    engines = config.rollout_workers
    ray.init(
        address="local",
        num_cpus=config.workers * config.cpus_per_worker + engines * config.rollout_cpus_per_worker,
        num_gpus=config.workers * config.devices_per_worker + engines * config.rollout_devices_per_worker,
        resources={TRAIN_RESOURCE: config.workers, ROLLOUT_RESOURCE: engines} if engines else None,
        include_dashboard=False,
    )


def leave_ray(config: TrainingConfig) -> None:
    """Write Ray's timeline if configured, and leave the cluster. No worker prints after that."""
    if "ray" not in sys.modules:  # after an error before join_ray
        return
    import ray

    timeline = config.observability.timeline
    if ray.is_initialized() and timeline is not None and timeline.file is not None:
        ray.timeline(timeline.file)
    ray.shutdown()
