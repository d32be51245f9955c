"""spec.rollout: how responses are generated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlt_api.model import NOT_YET, ApiModel, DnsLabel, JsonObject, NotYet, Positive, Probability, cel


class Staleness(ApiModel):
    """Generation that runs ahead of the training."""

    max_steps: Positive = 1
    """A response may be older than the weights by so many steps."""


class Rollout(ApiModel):
    """How responses are generated."""

    model_config = cel(
        (
            "!has(self.maxNumBatchedTokens) || !has(self.maxNumSeqs) || self.maxNumBatchedTokens >= self.maxNumSeqs",
            "maxNumBatchedTokens must not be less than maxNumSeqs",
        ),
        (
            "!has(self.workerGroup) || !has(self.mode) || self.mode == 'separate'",
            "workerGroup is for mode separate only",
        ),
    )

    engine: Literal["vllm", "transformers"] = "vllm"
    """vllm, or a plain sampler of transformers for comparison and small models."""
    mode: Annotated[Literal["colocated", "separate"], NotYet(("separate",))] = "colocated"
    """colocated: the workers train and generate in turns. separate: a worker group of its own generates, as ROLL's
    disjoint device mappings do."""
    worker_group: Annotated[DnsLabel | None, NOT_YET] = None
    """For separate: the name of the worker group that generates."""
    n: Annotated[int, Field(ge=1, le=4096, alias="responsesPerPrompt")] = 8
    """Responses to each prompt: the group of GRPO, which needs 2; verl's rollout.n. (To kubectl, n is false.)"""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature. Training uses the log-probabilities at this temperature too."""
    top_p: Probability = 1.0
    """Nucleus sampling: the smallest set of tokens with this probability."""
    top_k: Annotated[Annotated[int, Field(ge=-1, le=2**31 - 1)], NOT_YET] = -1
    """The so many most probable tokens. -1: all."""
    tensor_parallel_size: Annotated[Positive, NOT_YET] = 1
    """Devices that one engine is spread over: verl's tensor_model_parallel_size."""
    gpu_memory_utilization: Probability = 0.5
    """Share of a GPU's memory for vLLM. On a CPU the KV cache is kvCacheSpace instead."""
    kv_cache_space: Annotated[int, Field(ge=1, le=4096)] = 1
    """GiB of memory for vLLM's KV cache on a CPU (VLLM_CPU_KVCACHE_SPACE)."""
    enforce_eager: bool = True
    """Whether vLLM runs without compilation and CUDA graphs."""
    max_model_len: Annotated[Positive | None, NOT_YET] = None
    """The longest sequence the engine takes. Default: maxPromptLength + maxResponseLength."""
    max_num_seqs: Annotated[Positive | None, NOT_YET] = None
    """Responses generated at a time. Default: the engine's own."""
    max_num_batched_tokens: Annotated[Positive | None, NOT_YET] = None
    """Tokens in one pass of the engine. Default: the engine's own."""
    enable_chunked_prefill: Annotated[bool | None, NOT_YET] = None
    """Whether long prompts are taken in pieces. Default: the engine's own."""
    free_cache_engine: Annotated[bool, NOT_YET] = False
    """Whether the engine gives its memory back while the model trains. (verl: true.)"""
    engine_kwargs: Annotated[JsonObject, NOT_YET] = {}
    """More options of the engine, by its own names: verl's rollout.engine_kwargs."""
    staleness: Annotated[Staleness | None, NOT_YET] = None
    """Generation that runs ahead of the training. Default: none, on-policy."""
