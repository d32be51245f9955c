"""What can be said of spec.rollout before anything is started. Pure."""

from __future__ import annotations

from rlt_api.training_config import TrainingConfig
from rlt_trainer.rollout.vllm_options import check_engine_kwargs


def check_rollout(config: TrainingConfig) -> None:
    """Raises ValueError for what the engines cannot do."""
    rollout, ranks = config.rollout, config.workers * max(1, config.devices_per_worker)
    size = rollout.tensor_parallel_size
    if rollout.engine == "transformers":
        if size > 1:
            raise ValueError(f"rollout.tensorParallelSize {size} is for rollout.engine: vllm. Leave it out.")
        if rollout.engine_kwargs:
            raise ValueError(
                "rollout.engineKwargs are options of vLLM, and rollout.engine is transformers. Leave them out."
            )
    check_engine_kwargs(rollout)
    if size > 1 and rollout.mode == "separate":
        raise ValueError(
            f"rollout.tensorParallelSize {size} is for mode colocated: engines in a group of their own lie on one "
            "device each, so that each can be interrupted alone. Use 1, or mode: colocated."
        )
    if ranks % size:
        raise ValueError(
            f"rollout.tensorParallelSize {size} does not divide the {ranks} ranks. Use a divisor of {ranks}."
        )
    if rollout.staleness is not None and rollout.mode == "colocated":
        raise ValueError(
            "rollout.staleness wants engines that generate while the ranks train: use rollout.mode: separate with a "
            "rollout.workerGroup, or leave it out."
        )
    asked = config.data.max_prompt_length + config.data.max_response_length
    if rollout.max_model_len is not None and rollout.max_model_len < asked:
        raise ValueError(
            f"rollout.maxModelLen {rollout.max_model_len} is less than data.maxPromptLength and maxResponseLength "
            f"together, {asked}. Use {asked} or more, or leave it out."
        )
