"""Learning rates, clips, the critic and rewards."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.finding import Finding
from rlt_api.rules.words import nearest_word
from rlt_api.spec import RLTrainingJobSpec

REWARD_RULES = ("exact", "gsm8k")
"""What rewards[].name may be. The trainer has a function for each."""
SCHEDULE, STEPS = "spec.training.lrSchedule", "spec.training.totalSteps"


def decay_has_steps(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """ROLL: assert self.lr_decay_steps > 0."""
    schedule, steps = spec.training.lr_schedule, spec.training.total_steps
    if schedule is None:
        return
    decay = schedule.decay_steps
    involved: tuple[str, ...] = (f"{SCHEDULE}.decaySteps",)
    if decay == 0:
        fix = f"use {steps}, which is totalSteps, or leave it out" if steps else "leave it out: it is totalSteps then"
        yield Finding(f"{SCHEDULE}.decaySteps", "0", "the learning rate decays in no steps", fix, "lr-decay")
        return
    if decay is None:
        decay, involved = steps, (*involved, STEPS)
    if decay is not None and schedule.warmup_steps > decay:
        end = f"decaySteps {decay}" if schedule.decay_steps else f"totalSteps {decay}, where the decay ends"
        yield Finding(
            f"{SCHEDULE}.warmupSteps",
            str(schedule.warmup_steps),
            f"is more than {end}: no step is left to decay in",
            f"use {decay} or less",
            "lr-decay",
            involved,
        )


def steps_or_epochs(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The end is given once."""
    training = spec.training
    if training.total_steps and training.total_epochs:
        message = f"totalSteps {training.total_steps} says already where the training ends"
        field = "spec.training.totalEpochs"
        yield Finding(field, str(training.total_epochs), message, "leave one of them out", "training-end", (STEPS,))


def clip_is_an_interval(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """clipRatioLow <= clipRatioHigh, either being clipRatio where it is not given."""
    algorithm = spec.algorithm
    low = algorithm.clip_ratio if algorithm.clip_ratio_low is None else algorithm.clip_ratio_low
    high = algorithm.clip_ratio if algorithm.clip_ratio_high is None else algorithm.clip_ratio_high
    if low > high:
        given = algorithm.clip_ratio_low is not None
        name, other = ("clipRatioLow", "clipRatioHigh") if given else ("clipRatioHigh", "clipRatio")
        value, bound = (low, high) if given else (high, low)
        message = f"is {'above' if given else 'below'} {other} {bound}" + (
            "" if algorithm.clip_ratio_high is not None else " (clipRatio)"
        )
        fields = ("clipRatio", "clipRatioLow", "clipRatioHigh")
        missing = algorithm.clip_ratio_low is None or algorithm.clip_ratio_high is None
        involved = [f"spec.algorithm.{each}" for each in fields if each != "clipRatio" or missing]
        yield Finding(f"spec.algorithm.{name}", str(value), message, f"use {bound}", "clip-ratio", tuple(involved))


def gae_has_a_critic(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """gae needs values, and nothing else reads a critic."""
    algorithm, estimator = spec.algorithm, "spec.algorithm.advEstimator"
    if algorithm.adv_estimator == "gae" and algorithm.critic is None:
        fix = "add it ({} is enough), or use advEstimator: grpo"
        yield Finding("spec.algorithm.critic", "none", "advEstimator gae needs it", fix, "critic", (estimator,))
    if algorithm.adv_estimator != "gae" and algorithm.critic is not None:
        message = f"advEstimator {algorithm.adv_estimator} reads no critic"
        fix = "leave it out, or use advEstimator: gae"
        yield Finding("spec.algorithm.critic", "given", message, fix, "critic", (estimator,))


def penalty_begins_within_the_response(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """DAPO's soft penalty begins so many tokens before the longest response."""
    buffer = spec.algorithm.overlong_buffer
    if buffer and spec.data and buffer.length > spec.data.max_response_length:
        longest = spec.data.max_response_length
        message = f"is more than data.maxResponseLength {longest}"
        field, involved = "spec.algorithm.overlongBuffer.length", ("spec.data.maxResponseLength",)
        yield Finding(field, str(buffer.length), message, f"use {longest} or less", "overlong-buffer", involved)


def rewards_are_known(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """One way of scoring each, and a rule that there is."""
    for index, reward in enumerate(spec.rewards):
        field = f"spec.rewards[{index}]"
        given = [name for name in ("name", "function", "model") if getattr(reward, name) is not None]
        if len(given) != 1:
            value = " and ".join(given) or "none"
            message = "exactly one of name, function and model is needed"
            yield Finding(field, value, message, "give one of them", "reward-choice")
        if reward.name is not None and reward.name not in REWARD_RULES:
            meant = nearest_word(reward.name.lower(), REWARD_RULES, most=3)
            fix = f"did you mean {meant}?" if meant else f"use one of {', '.join(REWARD_RULES)}"
            yield Finding(f"{field}.name", reward.name, "is not a rule", fix, "reward-name")


RULES = (
    decay_has_steps,
    steps_or_epochs,
    clip_is_an_interval,
    gae_has_a_critic,
    penalty_begins_within_the_response,
    rewards_are_known,
)
