"""Which engine generates, and how tokens are drawn: as the job says."""

from __future__ import annotations

import torch
from transformers import GenerationConfig

from rlt_api.training_config import TrainingConfig
from rlt_trainer.policy.config import load_config_from
from rlt_trainer.policy.model import DTYPES
from rlt_trainer.rollout.engine import RolloutEngine, Sampling
from rlt_trainer.rollout.tensor_parallel_engine import TensorParallelEngine, tensor_parallel_group
from rlt_trainer.rollout.transformers_engine import TransformersEngine


def training_sampling(config: TrainingConfig, stop_token_ids: tuple[int, ...]) -> Sampling:
    """How the responses that are learned from are drawn."""
    return Sampling(
        temperature=config.rollout.temperature,
        top_p=config.rollout.top_p,
        top_k=config.rollout.top_k,
        max_tokens=config.data.max_response_length,
        stop_token_ids=stop_token_ids,
    )


def start_engine(config: TrainingConfig, *, files: str, device: torch.device, sampling: Sampling) -> RolloutEngine:
    """The engine on this device for the model in the folder `files`. Raises ValueError or EngineError."""
    if config.rollout.engine == "transformers":
        return TransformersEngine(
            files,
            dtype=DTYPES[config.model.dtype],
            device=device,
            sampling=sampling,
            trust_remote_code=config.model.trust_remote_code,
        )
    from rlt_trainer.rollout.vllm_engine import VllmEngine

    shared = config.rollout.tensor_parallel_size > 1
    group = tensor_parallel_group(config.rollout.tensor_parallel_size) if shared else None
    engine = VllmEngine(
        files,
        dtype=config.model.dtype,
        rollout=config.rollout,
        sampling=sampling,
        max_model_len=config.data.max_prompt_length + config.data.max_response_length,
        seed=config.training.seed,
        trust_remote_code=config.model.trust_remote_code,
    )
    return TensorParallelEngine(engine, group) if group else engine


def stop_token_ids(files: str, eos_token_id: int, *, trust_remote_code: bool) -> tuple[int, ...]:
    """The tokens that end a response: the tokenizer's and those of the model's generation config (chat models)."""
    try:
        generation = GenerationConfig.from_pretrained(files)
    except OSError:  # it has none
        generation = GenerationConfig.from_model_config(load_config_from(files, trust_remote_code=trust_remote_code))
    found = generation.eos_token_id
    more = found if isinstance(found, list) else [found]
    return tuple(sorted({eos_token_id, *more} - {None}))
