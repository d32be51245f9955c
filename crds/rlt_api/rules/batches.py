"""Batches, mini-batches and micro-batches: what must divide what, and what a group needs."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.factors import divisors_around, either, multiples_around
from rlt_api.finding import Finding
from rlt_api.rules.layout import CONTEXT_PARALLEL, RANKS, counted, data_parallel_size
from rlt_api.spec import RLTrainingJobSpec

TRAIN, MINI, MICRO = (
    f"spec.training.{name}" for name in ("trainBatchSize", "ppoMiniBatchSize", "ppoMicroBatchSizePerDevice")
)
RESPONSES = "spec.rollout.responsesPerPrompt"
ESTIMATOR = "spec.algorithm.advEstimator"
GROUPED = ("grpo", "rloo", "opo", "grpo_passk", "reinforce_plus_plus_baseline")
"""Estimators that compare a response with the others to the same prompt."""


def mini_batch_divides_batch(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Every prompt of a step is learned from once."""
    batch, mini = spec.training.train_batch_size, spec.training.ppo_mini_batch_size
    if mini is None or batch % mini == 0:
        return
    sizes = divisors_around(mini, batch, multiple_of=data_parallel_size(spec)) or divisors_around(mini, batch)
    message = f"is more than trainBatchSize {batch}" if mini > batch else f"does not divide trainBatchSize {batch}"
    yield Finding(MINI, str(mini), message, f"use {either(sizes)}", "batch-divisibility", (TRAIN,))


def ranks_share_the_batch(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Every rank gets as many prompts, with all their responses, in each optimizer step."""
    training, shares = spec.training, data_parallel_size(spec)
    mini, field = training.ppo_mini_batch_size, MINI
    if mini is None:
        mini, field = training.train_batch_size, TRAIN
    involved = (*RANKS, CONTEXT_PARALLEL)
    if mini % shares:
        parts = f"{shares} data-parallel shares" if shares > 1 else "the ranks"
        fitting = multiples_around(mini, shares)
        if field == MINI:
            fitting = divisors_around(mini, training.train_batch_size, multiple_of=shares) or fitting
        if mini < shares:
            message = f"prompts are fewer than {parts} (batch < chunks): {counted(spec)}"
            yield Finding(field, str(mini), message, f"use {either(fitting[:1])}", "batch-chunks", involved)
        else:
            message = f"prompts cannot be cut into {parts}: {counted(spec)}"
            yield Finding(field, str(mini), message, f"use {either(fitting)}", "batch-divisibility", involved)
    warmup = training.warmup
    if warmup and warmup.batch_size % shares:
        yield Finding(
            "spec.training.warmup.batchSize",
            str(warmup.batch_size),
            f"examples cannot be cut into {shares} data-parallel shares: {counted(spec)}",
            f"use {either(multiples_around(warmup.batch_size, shares))}",
            "batch-divisibility",
            involved,
        )


def micro_batches_are_whole(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A rank's responses are cut into equal passes, where somebody has said how large: a default is only a bound."""
    training, shares = spec.training, data_parallel_size(spec)
    micro, field = training.ppo_micro_batch_size_per_device, MICRO
    if "ppo_micro_batch_size_per_device" not in training.model_fields_set or training.use_dynamic_bsz:
        return
    prompts = training.ppo_mini_batch_size or training.train_batch_size
    responses = prompts * spec.rollout.n // shares
    if prompts % shares or responses <= micro or responses % micro == 0:
        return
    yield Finding(
        field,
        str(micro),
        f"does not divide the {responses} responses of a rank in an optimizer step "
        f"({prompts} prompts x {spec.rollout.n} responses / {shares} shares)",
        f"use {either(divisors_around(micro, responses))}",
        "micro-batch",
        (TRAIN, MINI, RESPONSES, *RANKS, CONTEXT_PARALLEL),
    )


def groups_have_two(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A response compared with nothing but itself has advantage 0 (TRL: GRPO requires at least 2 generations)."""
    estimator = spec.algorithm.adv_estimator
    if estimator in GROUPED and spec.rollout.n < 2:
        message = f"{estimator} compares the responses to a prompt with each other and needs 2"
        yield Finding(RESPONSES, str(spec.rollout.n), message, "use 2 or more, such as 8", "group-size", (ESTIMATOR,))


def filtered_groups_can_differ(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Groups of one are all alike, and all are drawn again for ever."""
    if spec.algorithm.filter_groups and spec.rollout.n < 2:
        field, message = "spec.algorithm.filterGroups", "needs groups of 2 responses to find out which are all alike"
        yield Finding(field, "given", message, "leave it out, or give responsesPerPrompt 8", "group-size", (RESPONSES,))


def dynamic_batches_have_a_size(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """useDynamicBsz fills passes by tokens: by how many, and the longest response must go in."""
    training, field = spec.training, "spec.training.ppoMaxTokenLenPerDevice"
    flag, tokens = "spec.training.useDynamicBsz", training.ppo_max_token_len_per_device
    if not training.use_dynamic_bsz:
        if tokens is not None:
            fix = "leave it out, or give useDynamicBsz: true"
            yield Finding(field, str(tokens), "is read with useDynamicBsz only", fix, "dynamic-batch", (flag,))
        return
    if spec.data is None:
        return
    longest = spec.data.max_prompt_length + spec.data.max_response_length
    least = -(-longest // training.context_parallel_size)
    lengths = ("spec.data.maxPromptLength", "spec.data.maxResponseLength", CONTEXT_PARALLEL, flag)
    if tokens is None:
        yield Finding(
            field, "none", "useDynamicBsz needs it", f"give {2 * longest}, or another", "dynamic-batch", (flag,)
        )
    elif tokens < least:
        message = (
            f"is less than one response with its prompt, {longest} tokens on {training.context_parallel_size} ranks"
        )
        yield Finding(field, str(tokens), message, f"use {least} or more", "dynamic-batch", lengths)


RULES = (
    mini_batch_divides_batch,
    ranks_share_the_batch,
    micro_batches_are_whole,
    groups_have_two,
    filtered_groups_can_differ,
    dynamic_batches_have_a_size,
)
