"""Sizes of batches, mini-batches, micro-batches and groups."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rlt_api.findings.factors import nearest_divisors, nearest_multiples
from rlt_api.findings.finding import Edit, Finding, use
from rlt_api.findings.kinds import below, effect_only_with, not_divisor, not_multiple, replaceable, superfluous
from rlt_api.rules.layout import CONTEXT_PARALLEL, TRAIN_WORKER_FIELDS, data_parallel_size, describe_train_workers
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import count_responses, has_engines

TRAIN = "spec.training.trainBatchSize"
MINI = "spec.training.ppoMiniBatchSize"
MICRO = "spec.training.ppoMicroBatchSizePerDevice"
WARMUP = "spec.training.warmup.batchSize"
DYNAMIC = "spec.training.useDynamicBsz"
MAX_TOKENS = "spec.training.ppoMaxTokenLenPerDevice"
RESPONSES = "spec.rollout.responsesPerPrompt"
ESTIMATOR = "spec.algorithm.advEstimator"
FILTER = "spec.algorithm.filterGroups"
SHARES = (*TRAIN_WORKER_FIELDS, CONTEXT_PARALLEL)
"""The fields that determine the data-parallel size."""
GROUPED = ("grpo", "rloo", "opo", "grpo_passk", "reinforce_plus_plus_baseline")
"""Estimators that compare the responses to one prompt with each other."""


def validate_mini_batch_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """ppoMiniBatchSize must divide trainBatchSize, so that each epoch uses every prompt of a step once."""
    batch = spec.training.train_batch_size
    mini = spec.training.ppo_mini_batch_size
    if mini is None or batch % mini == 0:
        return
    message = f"is larger than trainBatchSize {batch}" if mini > batch else f"does not divide trainBatchSize {batch}"
    shares = data_parallel_size(spec)
    unit = shares if spec.framework.type == "builtin" else shares // gcd(shares, spec.rollout.responses_per_prompt)
    yield change_mini_batch(spec, unit, message, "batch-divisibility", (TRAIN,))


def change_mini_batch(
    spec: RLTrainingJobSpec, unit: int, message: str, rule: str, involved: tuple[str, ...]
) -> Finding:
    """Build the finding for a mini-batch that must divide the batch and be a multiple of `unit`. If no size is, both
    sizes change. Without ppoMiniBatchSize, the batch is the mini-batch."""
    batch = spec.training.train_batch_size
    mini = spec.training.ppo_mini_batch_size
    if mini is None:
        return replaceable(TRAIN, batch, message, *nearest_multiples(batch, unit), rule=rule, involved=involved)
    if sizes := nearest_divisors(mini, batch, multiple_of=unit):
        return replaceable(MINI, mini, message, *sizes, rule=rule, involved=involved)
    fitting = -(-mini // unit) * unit
    total = max(round(batch / fitting), 1) * fitting
    fix = f"use {fitting}, and trainBatchSize {total}"
    edits: tuple[Edit, ...] = ({MINI: fitting, TRAIN: total},)
    return Finding(MINI, str(mini), message, fix, rule=rule, involved=involved, edits=edits)


def validate_data_parallel_batch(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With the builtin trainer, the data-parallel size must divide the mini-batch, so that all shares of an optimizer
    step are equal. Other frameworks divide its responses: each has its rule."""
    training = spec.training
    batch = training.train_batch_size
    mini = training.ppo_mini_batch_size
    shares = data_parallel_size(spec)
    size = batch if mini is None else mini
    what = f"the {shares} data-parallel shares: {describe_train_workers(spec)}"
    if size % shares:
        rule = "batch-chunks" if size < shares else "batch-divisibility"
        message = f"is not divisible by {what}"
        if size < shares:
            message = f"is less than the {shares} data-parallel shares (batch < chunks): {describe_train_workers(spec)}"
        yield change_mini_batch(spec, shares, message, rule, SHARES)
    if training.warmup and training.warmup.batch_size % shares:
        size = training.warmup.batch_size
        yield not_multiple(WARMUP, size, shares, what, rule="batch-divisibility", involved=SHARES)


def validate_micro_batch_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With the builtin trainer, an explicit ppoMicroBatchSizePerDevice must divide the responses of a device in an
    optimizer step. The default, and the size for other frameworks, is only an upper bound."""
    training = spec.training
    micro = training.ppo_micro_batch_size_per_device
    shares = data_parallel_size(spec)
    if "ppo_micro_batch_size_per_device" not in training.model_fields_set or training.use_dynamic_bsz:
        return
    prompts = training.ppo_mini_batch_size or training.train_batch_size
    responses = prompts * count_responses(spec) // shares
    if prompts % shares or responses <= micro or responses % micro == 0:
        return
    what = (
        f"the {responses} responses of a device in an optimizer step "
        f"({prompts} prompts x {count_responses(spec)} responses / {shares} shares)"
    )
    yield not_divisor(MICRO, micro, responses, what, rule="micro-batch", involved=(TRAIN, MINI, RESPONSES, *SHARES))


def validate_group_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Estimators with groups need responsesPerPrompt of at least 2: a group of one has advantage 0 (as in TRL)."""
    estimator = spec.algorithm.adv_estimator
    if estimator in GROUPED and spec.rollout.responses_per_prompt < 2:
        message = f"must be 2 or more for {estimator}, which compares the responses to one prompt"
        fix = "use 2 or more, such as 8"
        edits = use(RESPONSES, 2, 8)
        involved = (ESTIMATOR,)
        yield Finding(
            RESPONSES,
            str(spec.rollout.responses_per_prompt),
            message,
            fix,
            rule="group-size",
            involved=involved,
            edits=edits,
        )


def validate_filter_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """filterGroups needs groups of at least 2: it would discard every group of one, without end."""
    if spec.algorithm.filter_groups and spec.rollout.responses_per_prompt < 2:
        message = "needs at least 2 responses to each prompt"
        instead = "use responsesPerPrompt 8"
        yield superfluous(FILTER, "given", message, or_set={RESPONSES: 8}, instead=instead, rule="group-size")


def validate_dynamic_batch_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """useDynamicBsz needs ppoMaxTokenLenPerDevice, which must hold the longest prompt with its response."""
    training = spec.training
    tokens = training.ppo_max_token_len_per_device
    rule = "dynamic-batch"
    if not training.use_dynamic_bsz:
        if tokens is not None:
            yield effect_only_with(MAX_TOKENS, "useDynamicBsz", value=tokens, or_set={DYNAMIC: True}, rule=rule)
        return
    if spec.data is None:
        return
    longest = spec.data.max_prompt_length + spec.data.max_response_length
    longest *= 1 if has_engines(spec) else 2  # a pair is in one micro-batch
    minimum = -(-longest // training.context_parallel_size)
    if tokens is None:
        yield below(MAX_TOKENS, None, 2 * longest, "is required by useDynamicBsz", rule=rule, involved=(DYNAMIC,))
    elif tokens < minimum:
        unit = "prompt with its response" if has_engines(spec) else "pair"
        message = f"is less than one {unit}: {longest} tokens on {training.context_parallel_size} devices"
        involved = ("spec.data.maxPromptLength", "spec.data.maxResponseLength", CONTEXT_PARALLEL, DYNAMIC)
        yield below(MAX_TOKENS, tokens, minimum, message, rule=rule, involved=involved)


RULES = (
    validate_mini_batch_size,
    validate_group_size,
    validate_filter_groups,
    validate_dynamic_batch_size,
)
BUILTIN_RULES = (validate_data_parallel_batch, validate_micro_batch_size)
