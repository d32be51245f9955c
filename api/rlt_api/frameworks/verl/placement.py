"""Which devices train and generate with verl, and how far the generation may be ahead.

The asynchronous trainers are from main_ppo in verl 0.9 (verl/trainer/ppo/v1).
"""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from rlt_api.frameworks.run import count_devices
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import rollout_group, training_group

ROLLOUT = "actor_rollout_ref.rollout"
MODES: dict[Literal["colocated", "separate"], str] = {"colocated": "colocate_async", "separate": "separate_async"}
"""rollout.mode -> verl's trainer_mode with generation ahead."""


def list_placement(spec: RLTrainingJobSpec) -> dict[str, JsonValue]:
    """List the settings of devices and of the trainer's mode. Colocated without staleness is verl's default."""
    generating = rollout_group(spec)
    settings: dict[str, JsonValue] = {
        "trainer.nnodes": training_group(spec).replicas,
        "trainer.n_gpus_per_node": count_devices(spec),
    }
    if generating or spec.rollout.staleness:
        settings |= _list_mode(spec)
    if generating:
        training = spec.training
        settings |= {
            "actor_rollout_ref.hybrid_engine": False,
            f"{ROLLOUT}.nnodes": generating.replicas,
            f"{ROLLOUT}.n_gpus_per_node": generating.accelerator.count if generating.accelerator else 1,
            f"{ROLLOUT}.checkpoint_engine.backend": "nccl",
            # One update for each mini-batch, then the weights are sent.
            "trainer.v1.separate_async.parameter_sync_step": training.train_batch_size
            // (training.ppo_mini_batch_size or training.train_batch_size),
        }
        if spec.model and spec.model.lora:  # else this trainer sends the weights without the adapters
            settings["actor_rollout_ref.model.lora.merge"] = True
    return settings


def _list_mode(spec: RLTrainingJobSpec) -> dict[str, JsonValue]:
    """A response spans at most max_steps + 1 versions of the weights. verl waits for an older one instead of dropping
    it."""
    mode = MODES[spec.rollout.mode]
    staleness = spec.rollout.staleness
    ahead = staleness.max_steps if staleness else 0
    return {
        "trainer.v1.trainer_mode": mode,
        f"trainer.v1.{mode}.num_warmup_batches": ahead,
        "trainer.v1.sampler.max_off_policy_threshold": ahead + 1,
        "trainer.v1.sampler.max_off_policy_strategy": "wait",
    }
