"""The engine options and environment variables of vLLM. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlt_api.blocks.rollout import Rollout
from rlt_api.spec.engine_options import SET_BY, build_speculative_option
from rlt_trainer.rollout.stop_strings import may_have_stop_strings

if TYPE_CHECKING:
    from rlt_trainer.rollout.vllm_adapters import Adapters

QUANTIZATIONS = {"fp8": {"linear": "fp8_per_channel"}}
"""rollout.quantization -> what vLLM quantizes of a model in bfloat16 (vllm/config/quantization.py, vLLM 0.32).

Each output has a scale: a fused or sharded layer has the values of its parts, and vLLM computes them with torch alone.
Experts stay in bfloat16: kernels store quantized experts in their own formats, which a sync could not verify.
"""


def check_engine_kwargs(rollout: Rollout) -> None:
    """Raise ValueError if rollout.engineKwargs contains an option that the trainer sets."""
    for name in rollout.engine_kwargs:
        if name in SET_BY:
            raise ValueError(f"rollout.engineKwargs.{name}: the trainer sets this option ({SET_BY[name]}). Remove it.")


def build_variables(rollout: Rollout) -> dict[str, str]:
    """Build the environment variables of an engine's processes (vllm/envs.py, vLLM 0.32)."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(rollout.kv_cache_space),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # a CPU quota is not a set of cores
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # on CPUs: one process for scheduler and worker. AsyncLLM ignores it
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # the process that starts vLLM has threads
    }


def build_engine_options(
    files: str,
    *,
    dtype: str,
    rollout: Rollout,
    max_model_len: int,
    seed: int,
    float32_head: bool = False,
    trust_remote_code: bool,
    has_images: bool = False,
    adapters: Adapters | None = None,
    from_files: bool = False,
    reports_routes: bool = False,
    on_gpu: bool,
) -> dict[str, Any]:
    """Build the arguments of vLLM's AsyncEngineArgs for the model in the folder `files`.

    has_images: prompts can have images. vLLM then loads the tokenizer for its own processor, which counts the tokens
    of the largest image at the start.
    adapters: those that vLLM applies itself (model.lora.syncAdapters). The weights below them come from the files.
    from_files: all weights come from the files, and none from a weight sync (evaluateOnly).
    reports_routes: algorithm.routerReplay R3. vLLM's CPU build rejects it.
    """
    options: dict[str, Any] = {
        "model": files,
        "load_format": "auto" if adapters or from_files else "dummy",
        "dtype": dtype,
        "quantization": "online" if rollout.quantization else None,
        "quantization_config": QUANTIZATIONS[rollout.quantization] if rollout.quantization else None,
        "trust_remote_code": trust_remote_code,
        "seed": seed,
        "max_model_len": rollout.max_model_len or max_model_len,
        "max_num_seqs": rollout.max_num_seqs,
        "max_num_batched_tokens": rollout.max_num_batched_tokens,
        "enable_chunked_prefill": rollout.enable_chunked_prefill if on_gpu else False,  # why: rules/lengths.py
        "enforce_eager": rollout.enforce_eager,
        "gpu_memory_utilization": rollout.gpu_memory_utilization,
        "tensor_parallel_size": rollout.tensor_parallel_size,
        "enable_sleep_mode": True if rollout.free_cache_engine and on_gpu else None,
        "distributed_executor_backend": "uni" if rollout.tensor_parallel_size == 1 else "mp",
        "worker_extension_cls": "rlt_trainer.rollout.vllm_worker.WorkerExtension",
        "skip_tokenizer_init": not (has_images or may_have_stop_strings(rollout)),
        "limit_mm_per_prompt": {"video": 0} if has_images else None,
        "mm_device_do_normalize": False if has_images else None,
        **(adapters.options() if adapters else {}),
        "enable_return_routed_experts": reports_routes or None,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        **build_speculative_option(rollout),
        **rollout.engine_kwargs,
    }
    if float32_head:
        options["hf_overrides"] = {**options.get("hf_overrides", {}), "head_dtype": "float32"}
    return {name: value for name, value in options.items() if value is not None}
