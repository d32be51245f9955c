"""spec.rollout: how responses are generated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import ApiModel, DnsLabel, JsonObject, ObjectName, Positive, Probability, cel


class MultiTurn(ApiModel):
    """Conversations with an environment: verl's rollout.multi_turn."""

    environment: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.:]*$", max_length=253)]
    """calculator, or module:Class of your own, the module being in the image or in the ConfigMap: docs/rewards.md."""
    config_map: ObjectName | None = None
    """A ConfigMap in the job's namespace whose keys are the modules' files. Default: the image has the module."""
    max_turns: Positive = 8
    """The policy speaks at most so often: verl's max_assistant_turns. All turns and answers of a conversation together
    have data.maxResponseLength."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Time that the environment may take for one answer; one that takes longer counts as a failed reward."""


class Staleness(ApiModel):
    """Generation that runs ahead of the training."""

    max_steps: Positive = 1
    """A response may have begun with weights that are so many steps old when it is learned from. 1: one step off."""


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
    mode: Literal["colocated", "separate"] = "colocated"
    """colocated: the workers train and generate in turns. separate: a worker group of its own generates, as ROLL's
    disjoint device mappings do."""
    worker_group: DnsLabel | None = None
    """For separate: the name of the worker group that generates."""
    n: Annotated[int, Field(ge=1, le=4096, alias="responsesPerPrompt")] = 8
    """Responses to each prompt: the group of GRPO, which needs 2; verl's rollout.n. (To kubectl, n is false.)"""
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Sampling temperature. Training uses the log-probabilities at this temperature too."""
    top_p: Probability = 1.0
    """Nucleus sampling: the smallest set of tokens with this probability."""
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1
    """The so many most probable tokens. -1: all."""
    tensor_parallel_size: Positive = 1
    """Devices that one engine is spread over, in mode colocated: verl's tensor_model_parallel_size. In mode separate
    each device has an engine."""
    gpu_memory_utilization: Probability = 0.5
    """Share of a GPU's memory for vLLM. On a CPU the KV cache is kvCacheSpace instead."""
    kv_cache_space: Annotated[int, Field(ge=1, le=4096)] = 1
    """GiB of memory for vLLM's KV cache on a CPU (VLLM_CPU_KVCACHE_SPACE)."""
    enforce_eager: bool = True
    """Whether vLLM runs without compilation and CUDA graphs."""
    max_model_len: Positive | None = None
    """The longest sequence the engine takes. Default: maxPromptLength + maxResponseLength."""
    max_num_seqs: Positive | None = None
    """Responses generated at a time. Default: the engine's own."""
    max_num_batched_tokens: Positive | None = None
    """Tokens in one pass of the engine. Default: the engine's own."""
    enable_chunked_prefill: bool | None = None
    """Whether long prompts are taken in pieces. Default: the engine's own."""
    free_cache_engine: bool = False
    """Whether vLLM gives its memory back while the model trains: on GPUs, in mode colocated. (verl: true.)"""
    engine_kwargs: JsonObject = {}
    """More options of the engine, by its own names: verl's rollout.engine_kwargs."""
    staleness: Staleness | None = None
    """Generation that runs ahead of the training, in mode separate. Default: none, on-policy."""
    multi_turn: MultiTurn | None = None
    """Conversations with an environment. Default: one response to each prompt."""
