"""The engine options of vLLM. Pure."""

from __future__ import annotations

from typing import Any

from rlt_api.blocks.rollout import Rollout

SET_BY = {
    "model": "model.path or model.fromSeed",
    "revision": "model.revision",
    "tokenizer_revision": "model.revision",
    "dtype": "model.dtype",
    "trust_remote_code": "model.trustRemoteCode",
    "seed": "training.seed",
    "max_model_len": "rollout.maxModelLen",
    "max_num_seqs": "rollout.maxNumSeqs",
    "max_num_batched_tokens": "rollout.maxNumBatchedTokens",
    "enable_chunked_prefill": "rollout.enableChunkedPrefill",
    "enforce_eager": "rollout.enforceEager",
    "gpu_memory_utilization": "rollout.gpuMemoryUtilization",
    "tensor_parallel_size": "rollout.tensorParallelSize",
    "enable_sleep_mode": "rollout.freeCacheEngine",
    "distributed_executor_backend": "rollout.tensorParallelSize",
    "worker_extension_cls": "always the trainer's, which receives the weights",
    "skip_tokenizer_init": "always true: requests and responses are tokens",
    "load_format": "always dummy: the first weight sync loads the weights",
    "logprobs_mode": "always processed_logprobs: the distribution that is sampled",
    "generation_config": "always vllm: the model's own top_k and similar must not change the distribution",
    "disable_log_stats": "always true",
}
"""vLLM's option -> the field that sets it, or its fixed value."""


def check_engine_kwargs(rollout: Rollout) -> None:
    """Raise ValueError if rollout.engineKwargs contains an option that the trainer sets."""
    for name in rollout.engine_kwargs:
        if name in SET_BY:
            raise ValueError(f"rollout.engineKwargs.{name}: the trainer sets this option ({SET_BY[name]}). Remove it.")


def build_engine_options(
    files: str,
    *,
    dtype: str,
    rollout: Rollout,
    max_model_len: int,
    seed: int,
    trust_remote_code: bool,
    on_gpu: bool,
) -> dict[str, Any]:
    """Build the arguments of vLLM's AsyncEngineArgs for the model in the folder `files`."""
    options: dict[str, Any] = {
        "model": files,
        "load_format": "dummy",
        "dtype": dtype,
        "trust_remote_code": trust_remote_code,
        "seed": seed,
        "max_model_len": rollout.max_model_len or max_model_len,
        "max_num_seqs": rollout.max_num_seqs,
        "max_num_batched_tokens": rollout.max_num_batched_tokens,
        "enable_chunked_prefill": rollout.enable_chunked_prefill,
        "enforce_eager": rollout.enforce_eager,
        "gpu_memory_utilization": rollout.gpu_memory_utilization,
        "tensor_parallel_size": rollout.tensor_parallel_size,
        "enable_sleep_mode": True if rollout.free_cache_engine and on_gpu else None,
        "distributed_executor_backend": "uni" if rollout.tensor_parallel_size == 1 else "mp",
        "worker_extension_cls": "rlt_trainer.rollout.vllm_worker.WorkerExtension",
        "skip_tokenizer_init": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "disable_log_stats": True,
        **rollout.engine_kwargs,
    }
    return {name: value for name, value in options.items() if value is not None}
