"""Prompt and response lengths compared with the limits of the engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.findings.kinds import below, replaceable
from rlt_api.rules.context_lengths import find_context_length
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import has_engines

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


def validate_context_length(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Prompt and response, or maxModelLen, must fit into the context of a published model: vLLM does not start with a
    longer one. engineKwargs such as hf_overrides, and VLLM_ALLOW_LONG_MAX_MODEL_LEN, extend it."""
    path = spec.model.path if spec.model else None
    context = find_context_length(path) if path else None
    is_extended = bool({"hf_overrides", "rope_scaling", "config_format"} & spec.rollout.engine_kwargs.keys())
    is_extended |= any(variable.name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN" for variable in spec.cluster.env)
    is_extended |= any("rope" in text or "hf_overrides" in text for text in spec.framework.overrides)
    if context is None or spec.data is None or is_extended or spec.rollout.engine != "vllm" or not has_engines(spec):
        return
    longest = max_sequence_length(spec)
    if longest <= context:
        return
    rule = "context-length"
    involved = ("spec.model.path", *LENGTHS)
    message = f"is more than the context of {context} tokens that {path} has"
    if spec.rollout.max_model_len:
        yield replaceable(MODEL_LEN, longest, message, context, rule=rule, involved=involved)
        return
    field = LENGTHS[1]
    response = spec.data.max_response_length
    rest = context - spec.data.max_prompt_length
    message = f"+ maxPromptLength {spec.data.max_prompt_length} = {longest} tokens {message}"
    fix = f"use {rest} or less" if rest > 0 else "use smaller lengths"
    edits = use(field, rest) if rest > 0 else ()
    yield Finding(field, str(response), message, fix, rule=rule, involved=involved, edits=edits)


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


RULES = (validate_max_model_len, validate_context_length, validate_max_num_batched_tokens)
