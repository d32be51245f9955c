"""Prompt and response lengths against what the engine is allowed."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.finding import Finding
from rlt_api.spec import RLTrainingJobSpec

LENGTHS = ("spec.data.maxPromptLength", "spec.data.maxResponseLength")
MODEL_LEN, TOKENS, SEQS = (f"spec.rollout.{name}" for name in ("maxModelLen", "maxNumBatchedTokens", "maxNumSeqs"))


def longest_sequence(spec: RLTrainingJobSpec) -> int:
    """Tokens of the longest sequence that the engine takes."""
    assert spec.data
    return spec.rollout.max_model_len or spec.data.max_prompt_length + spec.data.max_response_length


def sequences_fit_the_engine(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """vLLM: the decoder prompt is longer than the maximum model length."""
    if spec.data is None or spec.rollout.max_model_len is None:
        return
    longest = spec.data.max_prompt_length + spec.data.max_response_length
    if longest > spec.rollout.max_model_len:
        yield Finding(
            MODEL_LEN,
            str(spec.rollout.max_model_len),
            f"is less than data.maxPromptLength {spec.data.max_prompt_length} + data.maxResponseLength "
            f"{spec.data.max_response_length} = {longest}",
            f"use {longest}",
            "max-model-len",
            LENGTHS,
        )


def a_pass_takes_a_prompt(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """vLLM does not start: max_num_batched_tokens is less than max_model_len or max_num_seqs (config/scheduler.py)."""
    rollout = spec.rollout
    if rollout.max_num_batched_tokens is None:
        return
    value = str(rollout.max_num_batched_tokens)
    if rollout.max_num_seqs is not None and rollout.max_num_batched_tokens < rollout.max_num_seqs:
        message = f"is less than maxNumSeqs {rollout.max_num_seqs}: each response takes a token of a pass"
        yield Finding(TOKENS, value, message, f"use {rollout.max_num_seqs} or more", "max-num-batched-tokens", (SEQS,))
    if rollout.enable_chunked_prefill is False and spec.data is not None:
        longest = longest_sequence(spec)
        if rollout.max_num_batched_tokens < longest:
            message = f"is less than the longest sequence, {longest} tokens, and enableChunkedPrefill is false"
            involved = (*LENGTHS, MODEL_LEN, "spec.rollout.enableChunkedPrefill")
            fix = f"use {longest}, or enableChunkedPrefill: true"
            yield Finding(TOKENS, value, message, fix, "max-num-batched-tokens", involved)


RULES = (sequences_fit_the_engine, a_pass_takes_a_prompt)
