"""The vLLM options that a job sets by other fields, or that the trainer needs."""

from __future__ import annotations

from pydantic import JsonValue

from rlt_api.blocks.rollout import Rollout

SET_BY = {
    "model": "model.path or model.fromSeed",
    "revision": "model.revision",
    "tokenizer_revision": "model.revision",
    "dtype": "model.dtype",
    "quantization": "rollout.quantization",
    "quantization_config": "rollout.quantization",
    "trust_remote_code": "model.trustRemoteCode",
    "seed": "training.seed",
    "max_model_len": "rollout.maxModelLen",
    "max_num_seqs": "rollout.maxNumSeqs",
    "max_num_batched_tokens": "rollout.maxNumBatchedTokens",
    "enable_chunked_prefill": "rollout.enableChunkedPrefill",
    "enforce_eager": "rollout.enforceEager",
    "gpu_memory_utilization": "rollout.gpuMemoryUtilization",
    "tensor_parallel_size": "rollout.tensorParallelSize",
    "speculative_config": "rollout.speculativeConfig",
    "enable_return_routed_experts": "algorithm.routerReplay",
    "enable_sleep_mode": "rollout.freeCacheEngine",
    "distributed_executor_backend": "rollout.tensorParallelSize",
    "nnodes": "rollout.tensorParallelSize",
    "node_rank": "rollout.tensorParallelSize",
    "master_addr": "rollout.tensorParallelSize",
    "master_port": "rollout.tensorParallelSize",
    "worker_extension_cls": "always the trainer's, which receives the weights",
    "skip_tokenizer_init": "true without images, rollout.stop and an agent: requests and responses are tokens",
    "mm_device_do_normalize": "false with data.imageKey: the trainer normalizes the pixels",
    "load_format": "dummy, because the first weight sync loads the weights, or auto with model.lora.syncAdapters",
    "enable_lora": "model.lora.syncAdapters",
    "max_lora_rank": "model.lora.rank",
    "lora_target_modules": "model.lora.targetModules",
    "logprobs_mode": "always processed_logprobs: the distribution that is sampled",
    "generation_config": "always vllm: the model's own top_k and similar must not change the distribution",
}
"""vLLM's option -> the field that sets it, or its fixed value."""
MAX_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of max_lora_rank (MaxLoRARanks in vllm/config/lora.py, vLLM 0.32). A smaller rank is padded with zeros."""


def build_speculative_option(rollout: Rollout) -> dict[str, JsonValue]:
    """Build vLLM's option speculative_config (vllm/config/speculative.py, vLLM 0.32). Empty without speculation."""
    config = rollout.speculative_config
    if config is None:
        return {}
    options: dict[str, JsonValue] = {
        "method": config.method,
        "num_speculative_tokens": config.num_speculative_tokens,
        "prompt_lookup_max": config.prompt_lookup_max,
        "prompt_lookup_min": config.prompt_lookup_min or config.prompt_lookup_max,
    }
    return {"speculative_config": options}
