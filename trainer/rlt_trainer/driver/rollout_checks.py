"""Validation of the rollout settings before Ray starts. Pure."""

from __future__ import annotations

from rlt_api.training_config import TrainingConfig
from rlt_trainer.rollout.vllm_options import check_engine_kwargs


def check_rollout(config: TrainingConfig) -> None:
    """Raises ValueError for settings that the engines do not support."""
    rollout, ranks = config.rollout, config.workers * max(1, config.devices_per_worker)
    size = rollout.tensor_parallel_size
    if rollout.engine == "transformers":
        if size > 1:
            raise ValueError(
                f"rollout.tensorParallelSize: {size} requires rollout.engine: vllm. Remove it, or use vllm."
            )
        if rollout.engine_kwargs:
            raise ValueError(
                "rollout.engineKwargs: vLLM options require rollout.engine: vllm. Remove them, or use vllm."
            )
    check_engine_kwargs(rollout)
    if size > 1 and rollout.mode == "separate":
        raise ValueError(
            f"rollout.tensorParallelSize: {size} is not supported with mode: separate, where each engine has one "
            "device so that it can be interrupted alone. Use 1, or mode: colocated."
        )
    if ranks % size:
        raise ValueError(
            f"rollout.tensorParallelSize: {ranks} ranks are not divisible by {size}. Use a divisor of {ranks}."
        )
    if rollout.staleness is not None and rollout.mode == "colocated":
        raise ValueError(
            "rollout.staleness: not supported with mode: colocated, where engines do not generate during training. Use "
            "rollout.mode: separate with a rollout.workerGroup, or remove staleness."
        )
    requested = config.data.max_prompt_length + config.data.max_response_length
    if rollout.max_model_len is not None and rollout.max_model_len < requested:
        raise ValueError(
            f"rollout.maxModelLen: {rollout.max_model_len} is less than data.maxPromptLength + maxResponseLength = "
            f"{requested}. Use at least {requested}, or remove it."
        )
