"""Sizes of batches, mini-batches, micro-batches and groups."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.factors import join_or, nearest_divisors, nearest_multiples
from rlt_api.findings.finding import Edit, Finding, remove, use
from rlt_api.rules.layout import CONTEXT_PARALLEL, TRAIN_WORKER_FIELDS, data_parallel_size, describe_train_workers
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.worker_groups import count_responses, has_engines

TRAIN, MINI, MICRO = (
    f"spec.training.{name}" for name in ("trainBatchSize", "ppoMiniBatchSize", "ppoMicroBatchSizePerDevice")
)
RESPONSES = "spec.rollout.responsesPerPrompt"
ESTIMATOR = "spec.algorithm.advEstimator"
GROUPED = ("grpo", "rloo", "opo", "grpo_passk", "reinforce_plus_plus_baseline")
"""Estimators that compare the responses to one prompt with each other."""


def validate_mini_batch_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """ppoMiniBatchSize must divide trainBatchSize, so that each epoch uses every prompt of a step once."""
    batch, mini = spec.training.train_batch_size, spec.training.ppo_mini_batch_size
    if mini is None or batch % mini == 0:
        return
    message = f"is larger than trainBatchSize {batch}" if mini > batch else f"does not divide trainBatchSize {batch}"
    fix, edits = _suggest_mini_batch(mini, batch, data_parallel_size(spec))
    yield Finding(MINI, str(mini), message, fix, "batch-divisibility", (TRAIN,), edits)


def _suggest_mini_batch(mini: int, batch: int, shares: int) -> tuple[str, tuple[Edit, ...]]:
    """Return the fix for a mini-batch that must divide the batch and be a multiple of the shares. If none does, both
    sizes change."""
    if sizes := nearest_divisors(mini, batch, multiple_of=shares):
        return f"use {join_or(sizes)}", use(MINI, *sizes)
    mini = -(-mini // shares) * shares
    batch = max(round(batch / mini), 1) * mini
    return f"use {mini}, and trainBatchSize {batch}", ({MINI: mini, TRAIN: batch},)


def validate_data_parallel_batch(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The data-parallel size must divide the mini-batch, so that all shares of an optimizer step are equal."""
    training, shares = spec.training, data_parallel_size(spec)
    mini, field = training.ppo_mini_batch_size, MINI
    if mini is None:
        mini, field = training.train_batch_size, TRAIN
    involved = (*TRAIN_WORKER_FIELDS, CONTEXT_PARALLEL)
    if mini % shares:
        sizes = nearest_multiples(mini, shares)
        fix, edits = f"use {join_or(sizes)}", use(TRAIN, *sizes)
        if field == MINI:
            fix, edits = _suggest_mini_batch(mini, training.train_batch_size, shares)
        if mini < shares:
            message = f"is less than the {shares} data-parallel shares (batch < chunks): {describe_train_workers(spec)}"
            yield Finding(field, str(mini), message, fix, "batch-chunks", involved, edits)
        else:
            message = f"is not divisible by the {shares} data-parallel shares: {describe_train_workers(spec)}"
            yield Finding(field, str(mini), message, fix, "batch-divisibility", involved, edits)
    warmup = training.warmup
    if warmup and warmup.batch_size % shares:
        field, sizes = "spec.training.warmup.batchSize", nearest_multiples(warmup.batch_size, shares)
        yield Finding(
            field,
            str(warmup.batch_size),
            f"is not divisible by the {shares} data-parallel shares: {describe_train_workers(spec)}",
            f"use {join_or(sizes)}",
            "batch-divisibility",
            involved,
            use(field, *sizes),
        )


def validate_micro_batch_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """An explicit ppoMicroBatchSizePerDevice must divide the responses of a device in an optimizer step. The default is
    only an upper bound."""
    training, shares = spec.training, data_parallel_size(spec)
    micro, field = training.ppo_micro_batch_size_per_device, MICRO
    if "ppo_micro_batch_size_per_device" not in training.model_fields_set or training.use_dynamic_bsz:
        return
    prompts = training.ppo_mini_batch_size or training.train_batch_size
    responses = prompts * count_responses(spec) // shares
    if prompts % shares or responses <= micro or responses % micro == 0:
        return
    sizes = nearest_divisors(micro, responses)
    yield Finding(
        field,
        str(micro),
        f"does not divide the {responses} responses of a device in an optimizer step "
        f"({prompts} prompts x {count_responses(spec)} responses / {shares} shares)",
        f"use {join_or(sizes)}",
        "micro-batch",
        (TRAIN, MINI, RESPONSES, *TRAIN_WORKER_FIELDS, CONTEXT_PARALLEL),
        use(field, *sizes),
    )


def validate_group_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Estimators with groups need responsesPerPrompt of at least 2: a group of one has advantage 0 (as in TRL)."""
    estimator = spec.algorithm.adv_estimator
    if estimator in GROUPED and spec.rollout.n < 2:
        message = f"must be 2 or more for {estimator}, which compares the responses to one prompt"
        yield Finding(
            RESPONSES,
            str(spec.rollout.n),
            message,
            "use 2 or more, such as 8",
            "group-size",
            (ESTIMATOR,),
            use(RESPONSES, 2, 8),
        )


def validate_filter_groups(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """filterGroups needs groups of at least 2: it would discard every group of one, without end."""
    if spec.algorithm.filter_groups and spec.rollout.n < 2:
        field, message = "spec.algorithm.filterGroups", "needs at least 2 responses to each prompt"
        edits = (*remove(field), *use(RESPONSES, 8))
        fix = "remove it, or use responsesPerPrompt 8"
        yield Finding(field, "given", message, fix, "group-size", (RESPONSES,), edits)


def validate_dynamic_batch_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """useDynamicBsz needs ppoMaxTokenLenPerDevice, which must hold the longest prompt with its response."""
    training, field = spec.training, "spec.training.ppoMaxTokenLenPerDevice"
    flag, tokens = "spec.training.useDynamicBsz", training.ppo_max_token_len_per_device
    if not training.use_dynamic_bsz:
        if tokens is not None:
            fix = "remove it, or use useDynamicBsz: true"
            edits = (*remove(field), *use(flag, True))
            message = "has an effect only with useDynamicBsz"
            yield Finding(field, str(tokens), message, fix, "dynamic-batch", (flag,), edits)
        return
    if spec.data is None:
        return
    longest = spec.data.max_prompt_length + spec.data.max_response_length
    longest *= 1 if has_engines(spec) else 2  # a pair is in one micro-batch
    minimum = -(-longest // training.context_parallel_size)
    lengths = ("spec.data.maxPromptLength", "spec.data.maxResponseLength", CONTEXT_PARALLEL, flag)
    if tokens is None:
        message, edits = "is required by useDynamicBsz", use(field, 2 * longest)
        yield Finding(field, "none", message, f"use {2 * longest} or more", "dynamic-batch", (flag,), edits)
    elif tokens < minimum:
        unit = "prompt with its response" if has_engines(spec) else "pair"
        message = f"is less than one {unit}: {longest} tokens on {training.context_parallel_size} devices"
        edits = use(field, minimum)
        yield Finding(field, str(tokens), message, f"use {minimum} or more", "dynamic-batch", lengths, edits)


RULES = (
    validate_mini_batch_size,
    validate_data_parallel_batch,
    validate_micro_batch_size,
    validate_group_size,
    validate_filter_groups,
    validate_dynamic_batch_size,
)
