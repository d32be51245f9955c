"""Prompt and response lengths compared with the limits of the engine."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.findings.kinds import below, replaceable, superfluous
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
    on_cpus = _is_vllm_on_cpus(spec)
    longest = max_sequence_length(spec) if spec.data is not None else 0
    if tokens < longest and (on_cpus or spec.rollout.enable_chunked_prefill is False):
        reason = "vLLM splits no prompts on CPUs" if on_cpus else "enableChunkedPrefill is false"
        message = f"is less than the longest sequence of {longest} tokens, and {reason}"
        needed = max(longest, sequences or 0)
        involved = (*LENGTHS, MODEL_LEN, CHUNKED)
        edits = ({TOKENS: needed},) if on_cpus else ({TOKENS: needed}, {CHUNKED: True})
        fix = f"use {needed}" if on_cpus else f"use {needed}, or enableChunkedPrefill: true"
        yield Finding(TOKENS, str(tokens), message, fix, rule=rule, involved=involved, edits=edits)
    elif sequences is not None and tokens < sequences:
        message = f"is less than maxNumSeqs {sequences}: each sequence needs one token of a batch"
        yield below(TOKENS, tokens, sequences, message, rule=rule, involved=(SEQS,))


def validate_chunked_prefill(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """enableChunkedPrefill needs accelerators: for a request with a seed, vLLM sets back the generator after a part of
    a prompt, which torch cannot do on CPUs (v1/worker/gpu_model_runner.py, _bookkeeping_sync)."""
    if spec.rollout.enable_chunked_prefill and _is_vllm_on_cpus(spec):
        message = "fails with vLLM on CPUs, whose generators cannot be set back after a part of a prompt"
        involved = ("spec.rollout.engine", "spec.cluster.workers")
        yield superfluous(CHUNKED, "true", message, rule="chunked-prefill", involved=involved)


def _is_vllm_on_cpus(spec: RLTrainingJobSpec) -> bool:
    """Whether the builtin trainer generates with vLLM on CPUs."""
    is_vllm = spec.framework.type == "builtin" and spec.rollout.engine == "vllm" and has_engines(spec)
    return is_vllm and all(group.accelerator is None for group in spec.cluster.workers)


RULES = (
    validate_max_model_len,
    validate_context_length,
    validate_max_num_batched_tokens,
    validate_chunked_prefill,
)
