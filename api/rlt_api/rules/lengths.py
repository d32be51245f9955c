"""Prompt and response lengths compared with the limits of the engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

LENGTHS = ("spec.data.maxPromptLength", "spec.data.maxResponseLength")
MODEL_LEN, TOKENS, SEQS = (f"spec.rollout.{name}" for name in ("maxModelLen", "maxNumBatchedTokens", "maxNumSeqs"))


def max_sequence_length(spec: RLTrainingJobSpec) -> int:
    """Return the maximum number of tokens in a sequence of the engine."""
    assert spec.data
    return spec.rollout.max_model_len or spec.data.max_prompt_length + spec.data.max_response_length


def validate_max_model_len(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """maxModelLen must hold maxPromptLength + maxResponseLength: vLLM rejects longer prompts."""
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
            use(MODEL_LEN, longest),
        )


def validate_max_num_batched_tokens(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """maxNumBatchedTokens must not be less than maxNumSeqs or, without chunked prefill, the longest sequence. Otherwise
    vLLM does not start (config/scheduler.py)."""
    rollout = spec.rollout
    if rollout.max_num_batched_tokens is None:
        return
    value = str(rollout.max_num_batched_tokens)
    if rollout.max_num_seqs is not None and rollout.max_num_batched_tokens < rollout.max_num_seqs:
        message = f"is less than maxNumSeqs {rollout.max_num_seqs}: each sequence needs one token of a batch"
        fix, edits = f"use {rollout.max_num_seqs} or more", use(TOKENS, rollout.max_num_seqs)
        yield Finding(TOKENS, value, message, fix, "max-num-batched-tokens", (SEQS,), edits)
    if rollout.enable_chunked_prefill is False and spec.data is not None:
        longest = max_sequence_length(spec)
        if rollout.max_num_batched_tokens < longest:
            message = f"is less than the longest sequence of {longest} tokens, and enableChunkedPrefill is false"
            involved = (*LENGTHS, MODEL_LEN, "spec.rollout.enableChunkedPrefill")
            fix = f"use {longest}, or enableChunkedPrefill: true"
            edits = (*use(TOKENS, longest), *use("spec.rollout.enableChunkedPrefill", True))
            yield Finding(TOKENS, value, message, fix, "max-num-batched-tokens", involved, edits)


RULES = (validate_max_model_len, validate_max_num_batched_tokens)
