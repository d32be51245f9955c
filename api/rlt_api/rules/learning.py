"""Learning rate, clipping, critic, rewards, user-defined functions and rollout correction."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, remove, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

SCHEDULE, STEPS = "spec.training.lrSchedule", "spec.training.totalSteps"


def validate_lr_decay(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """decaySteps must be above 0 (as in ROLL); warmupSteps must not be above decaySteps or totalSteps."""
    schedule, steps = spec.training.lr_schedule, spec.training.total_steps
    if schedule is None:
        return
    decay = schedule.decay_steps
    involved: tuple[str, ...] = (f"{SCHEDULE}.decaySteps",)
    if decay == 0:
        fix = f"use totalSteps {steps}, or remove it" if steps else "remove it: the default is totalSteps"
        field = f"{SCHEDULE}.decaySteps"
        edits = (*(use(field, steps) if steps else ()), *remove(field))
        yield Finding(field, "0", "must be above 0", fix, "lr-decay", edits=edits)
        return
    if decay is None:
        decay, involved = steps, (*involved, STEPS)
    if decay is not None and schedule.warmup_steps > decay:
        end = f"decaySteps {decay}" if schedule.decay_steps else f"totalSteps {decay}, the end of the decay"
        yield Finding(
            f"{SCHEDULE}.warmupSteps",
            str(schedule.warmup_steps),
            f"is above {end}",
            f"use {decay} or less",
            "lr-decay",
            involved,
            use(f"{SCHEDULE}.warmupSteps", decay),
        )


def validate_router_loss(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """routerAuxLossCoef needs whole sequences on a device, and layers that are not compiled."""
    field, training = "spec.algorithm.routerAuxLossCoef", spec.training
    if spec.framework.type != "builtin" or spec.algorithm.router_aux_loss_coef == 0:
        return
    for other, is_set in {
        "spec.training.contextParallelSize": training.context_parallel_size > 1,
        "spec.training.useTorchCompile": training.use_torch_compile,
    }.items():
        if is_set:
            message = f"cannot be combined with {other.removeprefix('spec.')}"
            value = str(spec.algorithm.router_aux_loss_coef)
            yield Finding(field, value, message, "remove one of them", "router-loss", (other,), remove(field, other))


def validate_router_bias(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """routerBiasUpdateRate needs layers that are not compiled, and a policy without adapters, whose reference has the
    same routers."""
    field, rate = "spec.algorithm.routerBiasUpdateRate", spec.algorithm.router_bias_update_rate
    if spec.framework.type != "builtin" or rate == 0:
        return
    for other, is_set in {
        "spec.training.useTorchCompile": spec.training.use_torch_compile,
        "spec.model.lora": bool(spec.model and spec.model.lora),
    }.items():
        if is_set:
            message = f"cannot be combined with {other.removeprefix('spec.')}"
            yield Finding(
                field, str(rate), message, "remove one of them", "router-bias", (other,), remove(field, other)
            )


def validate_training_end(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Only one of totalSteps and totalEpochs can be given."""
    training = spec.training
    if training.total_steps and training.total_epochs:
        message = f"cannot be combined with totalSteps {training.total_steps}"
        field = "spec.training.totalEpochs"
        yield Finding(
            field,
            str(training.total_epochs),
            message,
            "remove one of them",
            "training-end",
            (STEPS,),
            remove(field, STEPS),
        )


def validate_clip_ratio(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """clipRatioLow must not be above clipRatioHigh; the default of both is clipRatio."""
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
        field, edits = f"spec.algorithm.{name}", use(f"spec.algorithm.{name}", bound)
        yield Finding(field, str(value), message, f"use {bound}", "clip-ratio", tuple(involved), edits)


def validate_trl_cispo_clip_ratio(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With convention trl and policyLoss cispo, clipRatioHigh must be at least 1: it is the maximum ratio itself (TRL's
    epsilon_high), not its distance from 1."""
    algorithm = spec.algorithm
    high = algorithm.clip_ratio_high
    if algorithm.convention == "trl" and algorithm.policy_loss == "cispo" and (high is None or high < 1):
        involved = ("spec.algorithm.convention", "spec.algorithm.policyLoss")
        message, fix = "must be 1 or more with trl's cispo, where it is the maximum ratio itself", "use 5.0"
        field = "spec.algorithm.clipRatioHigh"
        value = "none" if high is None else str(high)
        yield Finding(field, value, message, fix, "clip-ratio", involved, use(field, 5.0))


def validate_critic(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """advEstimator gae needs a critic, and no other estimator uses one."""
    algorithm, estimator = spec.algorithm, "spec.algorithm.advEstimator"
    if algorithm.adv_estimator == "gae" and algorithm.critic is None:
        fix = "add it ({} uses the defaults), or use advEstimator: grpo"
        field, message = "spec.algorithm.critic", "is required by advEstimator gae"
        edits = (*use(field, {}), *use(estimator, "grpo"))
        yield Finding(field, "none", message, fix, "critic", (estimator,), edits)
    if algorithm.adv_estimator != "gae" and algorithm.critic is not None and algorithm.advantage_function is None:
        message = f"is not used by advEstimator {algorithm.adv_estimator}"
        fix = "remove it, or use advEstimator: gae"
        field = "spec.algorithm.critic"
        edits = (*remove(field), *use(estimator, "gae"))
        yield Finding(field, "given", message, fix, "critic", (estimator,), edits)


def validate_overlong_buffer(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """overlongBuffer.length must not be above maxResponseLength: the penalty starts that many tokens before the end."""
    buffer = spec.algorithm.overlong_buffer
    if buffer and spec.data and buffer.length > spec.data.max_response_length:
        longest = spec.data.max_response_length
        message = f"is above data.maxResponseLength {longest}"
        field, involved = "spec.algorithm.overlongBuffer.length", ("spec.data.maxResponseLength",)
        yield Finding(
            field,
            str(buffer.length),
            message,
            f"use {longest} or less",
            "overlong-buffer",
            involved,
            use(field, longest),
        )


def validate_user_defined_functions(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A user-defined function replaces advEstimator or policyLoss, so only one of the two can be given."""
    given = spec.algorithm.model_fields_set
    for own, field, name in (
        ("advantage_function", "advantageFunction", "adv_estimator"),
        ("policy_loss_function", "policyLossFunction", "policy_loss"),
    ):
        if getattr(spec.algorithm, own) is not None and name in given:
            other = {"adv_estimator": "advEstimator", "policy_loss": "policyLoss"}[name]
            message, fix = f"replaces {other}, and both are given", "remove one of them"
            path, involved = f"spec.algorithm.{field}", (f"spec.algorithm.{other}",)
            yield Finding(path, "given", message, fix, "own-function", involved, remove(path, *involved))


def validate_rollout_correction(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rejection needs rejectionThreshold, above 1 for k1 statistics; lowerThreshold must be below threshold; bypassMode
    cannot be combined with weights and rejection."""
    correction, field = spec.algorithm.rollout_correction, "spec.algorithm.rolloutCorrection"
    if correction is None:
        return
    if correction.bypass_mode:
        defaults = {"level": ("none", "token"), "threshold": (2.0,)}
        for name, value in correction.to_json().items():
            if name != "bypassMode" and value not in defaults.get(name, (None,)):
                message, fix = "has no effect with bypassMode, which weights and rejects nothing", "remove one of them"
                path, involved = f"{field}.{name}", (f"{field}.bypassMode",)
                yield Finding(path, str(value), message, fix, "bypass-mode", involved, remove(path, *involved))
        return
    rejection, bound = correction.rejection, correction.rejection_threshold
    if rejection is not None and bound is None:
        message, fix = f"is required by rejection {rejection}", "add it, such as 1.01 for k1 and 0.001 for k2 and k3"
        path, involved = f"{field}.rejectionThreshold", (f"{field}.rejection",)
        edits = use(path, 1.01 if rejection.endswith("k1") else 0.001)
        yield Finding(path, "none", message, fix, "rejection", involved, edits)
    if rejection is None and bound is not None:
        message, fix = "has an effect only with rejection", "remove it, or add rejection, such as seq_mean_k1"
        path, involved = f"{field}.rejectionThreshold", (f"{field}.rejection",)
        yield Finding(path, str(bound), message, fix, "rejection", involved, remove(path))
    if rejection and rejection.endswith("k1") and bound is not None and bound <= 1:
        message = "must be above 1: it keeps ratios between 1/threshold and threshold"
        fix = "use a value above 1, such as 1.01"
        path, involved = f"{field}.rejectionThreshold", (f"{field}.rejection",)
        yield Finding(path, str(bound), message, fix, "rejection", involved, use(path, 1.01))
    lower = correction.lower_threshold
    if lower is not None and lower >= correction.threshold:
        message = f"is not below threshold {correction.threshold}"
        path, involved = f"{field}.lowerThreshold", (f"{field}.threshold",)
        fix = f"use a value below {correction.threshold}, such as {correction.threshold / 2:g}"
        edits = use(path, correction.threshold / 2)
        yield Finding(path, str(lower), message, fix, "rejection", involved, edits)


RULES = (
    validate_lr_decay,
    validate_router_loss,
    validate_router_bias,
    validate_training_end,
    validate_clip_ratio,
    validate_trl_cispo_clip_ratio,
    validate_critic,
    validate_overlong_buffer,
    validate_user_defined_functions,
    validate_rollout_correction,
)
