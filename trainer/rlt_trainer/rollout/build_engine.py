"""Selection of the engine and its sampling parameters from the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import GenerationConfig

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.data.tokenizer import load_tokenizer
from rlt_trainer.policy.config import load_config_from, load_image_processor
from rlt_trainer.policy.model_files import DTYPES
from rlt_trainer.rollout.engine import RolloutEngine, Sampling
from rlt_trainer.rollout.stop_strings import may_have_stop_strings

if TYPE_CHECKING:
    from rlt_trainer.rollout.vllm_engine import VllmEngine
    from rlt_trainer.rollout.vllm_pods import EnginePod


def build_sampling(config: TrainingConfig, stop_token_ids: tuple[int, ...]) -> Sampling:
    """Build the sampling parameters of training responses."""
    return Sampling(
        temperature=config.rollout.temperature,
        top_p=config.rollout.top_p,
        top_k=config.rollout.top_k,
        min_p=config.rollout.min_p,
        stop=tuple(config.rollout.stop),
        max_tokens=config.data.max_response_length,
        stop_token_ids=stop_token_ids,
    )


def build_engine(
    config: TrainingConfig, *, files: str, device: torch.device, pod: EnginePod | None = None
) -> RolloutEngine:
    """Build the engine of this process with the model in the folder `files`. Raises ValueError.

    `pod`: the first one of an engine in several pods.
    """
    if config.rollout.engine == "transformers":
        from rlt_trainer.rollout.transformers_engine import TransformersEngine

        return TransformersEngine(
            files,
            dtype=DTYPES[config.model.dtype],
            device=device,
            float32_head=config.model.cast_lm_head_to_fp32,
            trust_remote_code=config.model.trust_remote_code,
            processor=load_image_processor(config),
            tokenizer=load_tokenizer(config.model) if may_have_stop_strings(config.rollout) else None,
            reports_routes=_needs_routes(config),
        )
    return build_vllm(config, files=files, pod=pod)


def build_vllm(config: TrainingConfig, *, files: str, pod: EnginePod | None = None) -> VllmEngine:
    """Build vLLM, or its part in one `pod`, with the model in the folder `files`. Raises ValueError."""
    from rlt_trainer.rollout.vllm_adapters import Adapters
    from rlt_trainer.rollout.vllm_engine import VllmEngine

    model = config.model
    adapters = None
    if model.lora and model.lora.sync_adapters:
        adapters = Adapters.of(files, model.lora, trust_remote_code=model.trust_remote_code)
    return VllmEngine(
        files,
        dtype=model.dtype,
        rollout=config.rollout,
        max_model_len=config.data.max_prompt_length + config.data.max_response_length,
        seed=config.training.seed,
        float32_head=model.cast_lm_head_to_fp32,
        trust_remote_code=model.trust_remote_code,
        processor=load_image_processor(config),
        adapters=adapters,
        from_files=config.evaluate_only is not None,
        pod=pod,
        reports_routes=_needs_routes(config),
    )


def _needs_routes(config: TrainingConfig) -> bool:
    return config.algorithm.router_replay == "R3" and config.evaluate_only is None


def load_stop_token_ids(files: str, eos_token_id: int, *, trust_remote_code: bool) -> tuple[int, ...]:
    """Return the tokens that end a response: the EOS tokens of the tokenizer and of the generation config."""
    try:
        generation = GenerationConfig.from_pretrained(files)
    except OSError:  # the model has no generation config
        generation = GenerationConfig.from_model_config(load_config_from(files, trust_remote_code=trust_remote_code))
    found = generation.eos_token_id
    eos = found if isinstance(found, list) else [found]
    return tuple(sorted({eos_token_id, *eos} - {None}))
