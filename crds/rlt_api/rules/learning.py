"""Learning rates, clips, the critic and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from pydantic import JsonValue, ValidationError

from rlt_api.finding import Finding, child, shown
from rlt_api.reward_rules import RULE_OPTIONS
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.spelling import nearest_word

REWARD_RULES = tuple(RULE_OPTIONS)
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


def trls_cispo_has_a_cap(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """TRL's epsilon_high for cispo is the largest ratio itself, not what it may exceed 1 by."""
    algorithm = spec.algorithm
    high = algorithm.clip_ratio_high
    if algorithm.convention == "trl" and algorithm.policy_loss == "cispo" and (high is None or high < 1):
        involved = ("spec.algorithm.convention", "spec.algorithm.policyLoss")
        message, fix = "is the largest ratio itself in trl's cispo, and would scale every token down", "use 5.0"
        field = "spec.algorithm.clipRatioHigh"
        yield Finding(field, "none" if high is None else str(high), message, fix, "clip-ratio", involved)


def gae_has_a_critic(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """gae needs values, and nothing else reads a critic."""
    algorithm, estimator = spec.algorithm, "spec.algorithm.advEstimator"
    if algorithm.adv_estimator == "gae" and algorithm.critic is None:
        fix = "add it ({} is enough), or use advEstimator: grpo"
        yield Finding("spec.algorithm.critic", "none", "advEstimator gae needs it", fix, "critic", (estimator,))
    if algorithm.adv_estimator != "gae" and algorithm.critic is not None and algorithm.advantage_function is None:
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
        elif reward.name is not None:
            yield from options_fit(reward.name, reward.options, f"{field}.options")
        elif reward.options:
            yield Finding(
                f"{field}.options", "given", "is for rules by name", "leave it out", "reward-choice", (field,)
            )


def options_fit(rule: str, options: Mapping[str, JsonValue], field: str) -> Iterator[Finding]:
    """Each rule knows its own parameters."""
    try:
        RULE_OPTIONS[rule].model_validate(options)
    except ValidationError as error:
        for problem in error.errors():
            known = ", ".join(RULE_OPTIONS[rule].model_json_schema(by_alias=True).get("properties", {})) or "none"
            value = "none" if problem["type"] == "missing" else shown(str(problem["input"]))
            fix = f"the options of {rule} are: {known}"
            yield Finding(reduce(child, problem["loc"], field), value, problem["msg"], fix, "reward-options", (field,))


def functions_stand_alone(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A function of the user's own takes the place of what the API names."""
    given = spec.algorithm.model_fields_set
    for own, field, name in (
        ("advantage_function", "advantageFunction", "adv_estimator"),
        ("policy_loss_function", "policyLossFunction", "policy_loss"),
    ):
        if getattr(spec.algorithm, own) is not None and name in given:
            other = {"adv_estimator": "advEstimator", "policy_loss": "policyLoss"}[name]
            message, fix = f"takes the place of {other}", "leave one of them out"
            involved = (f"spec.algorithm.{other}",)
            yield Finding(f"spec.algorithm.{field}", "given", message, fix, "own-function", involved)


def rejection_has_a_bound(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A statistic without a bound rejects nothing; and weights are cut in an interval."""
    correction, field = spec.algorithm.rollout_correction, "spec.algorithm.rolloutCorrection"
    if correction is None:
        return
    rejection, bound = correction.rejection, correction.rejection_threshold
    if rejection is not None and bound is None:
        message, fix = f"rejection {rejection} needs it", "give it, such as 1.01 for k1 and 0.001 for k2 and k3"
        involved = (f"{field}.rejection",)
        yield Finding(f"{field}.rejectionThreshold", "none", message, fix, "rejection", involved)
    if rejection is None and bound is not None:
        message, fix = "is read with rejection only", "leave it out, or give rejection, such as seq_mean_k1"
        yield Finding(f"{field}.rejectionThreshold", str(bound), message, fix, "rejection", (f"{field}.rejection",))
    if rejection and rejection.endswith("k1") and bound is not None and bound <= 1:
        message, fix = (
            "keeps no ratio: they are to lie within 1/threshold and threshold",
            "use more than 1, such as 1.01",
        )
        yield Finding(f"{field}.rejectionThreshold", str(bound), message, fix, "rejection", (f"{field}.rejection",))
    lower = correction.lower_threshold
    if lower is not None and lower >= correction.threshold:
        message, fix = f"is not below threshold {correction.threshold}", f"use less than {correction.threshold}"
        yield Finding(f"{field}.lowerThreshold", str(lower), message, fix, "rejection", (f"{field}.threshold",))


RULES = (
    decay_has_steps,
    steps_or_epochs,
    clip_is_an_interval,
    trls_cispo_has_a_cap,
    gae_has_a_critic,
    penalty_begins_within_the_response,
    rewards_are_known,
    functions_stand_alone,
    rejection_has_a_bound,
)
