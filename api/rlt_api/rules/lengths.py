"""Prompt and response lengths compared with the limits of the engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import below, replaceable
from rlt_api.spec.job_spec import RLTrainingJobSpec

LENGTHS = ("spec.data.maxPromptLength", "spec.data.maxResponseLength")
MODEL_LEN = "spec.rollout.maxModelLen"
TOKENS = "spec.rollout.maxNumBatchedTokens"
SEQS = "spec.rollout.maxNumSeqs"
CHUNKED = "spec.rollout.enableChunkedPrefill"


def max_sequence_length(spec: RLTrainingJobSpec) -> int:
    """Return the maximum number of tokens in a sequence of the engine."""
    assert spec.data
    return spec.rollout.max_model_len or spec.data.max_prompt_length + spec.data.max_response_length


def validate_max_model_len(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """maxModelLen must hold maxPromptLength + maxResponseLength: vLLM rejects longer prompts."""
    maximum = spec.rollout.max_model_len
    if spec.data is None or maximum is None:
        return
    prompt = spec.data.max_prompt_length
    response = spec.data.max_response_length
    longest = prompt + response
    if longest > maximum:
        message = f"is less than data.maxPromptLength {prompt} + data.maxResponseLength {response} = {longest}"
        yield replaceable(MODEL_LEN, maximum, message, longest, rule="max-model-len", involved=LENGTHS)


def validate_max_num_batched_tokens(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """maxNumBatchedTokens must not be less than maxNumSeqs or, without chunked prefill, the longest sequence. Otherwise
    vLLM does not start (config/scheduler.py)."""
    tokens = spec.rollout.max_num_batched_tokens
    sequences = spec.rollout.max_num_seqs
    rule = "max-num-batched-tokens"
    if tokens is None:
        return
    if sequences is not None and tokens < sequences:
        message = f"is less than maxNumSeqs {sequences}: each sequence needs one token of a batch"
        yield below(TOKENS, tokens, sequences, message, rule=rule, involved=(SEQS,))
    if spec.rollout.enable_chunked_prefill is False and spec.data is not None:
        longest = max_sequence_length(spec)
        if tokens < longest:
            message = f"is less than the longest sequence of {longest} tokens, and enableChunkedPrefill is false"
            involved = (*LENGTHS, MODEL_LEN, CHUNKED)
            edits = ({TOKENS: longest}, {CHUNKED: True})
            fix = f"use {longest}, or enableChunkedPrefill: true"
            yield Finding(TOKENS, str(tokens), message, fix, rule=rule, involved=involved, edits=edits)


RULES = (validate_max_model_len, validate_max_num_batched_tokens)
