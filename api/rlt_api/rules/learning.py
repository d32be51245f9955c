"""Learning rate, clipping, critic, rewards, user-defined functions and rollout correction."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, remove, use
from rlt_api.findings.kinds import above, conflict, effect_only_with, not_used, replaceable, required
from rlt_api.spec.job_spec import RLTrainingJobSpec

SCHEDULE = "spec.training.lrSchedule"
WARMUP_STEPS = f"{SCHEDULE}.warmupSteps"
STEPS = "spec.training.totalSteps"
CLIP = "spec.algorithm.clipRatio"
CLIP_LOW = "spec.algorithm.clipRatioLow"
CLIP_HIGH = "spec.algorithm.clipRatioHigh"
CORRECTION = "spec.algorithm.rolloutCorrection"


def validate_lr_decay(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """decaySteps must be above 0 (as in ROLL); warmupSteps must not be above decaySteps or totalSteps."""
    schedule = spec.training.lr_schedule
    steps = spec.training.total_steps
    if schedule is None:
        return
    decay = schedule.decay_steps
    field = f"{SCHEDULE}.decaySteps"
    if decay == 0:
        fix = f"use totalSteps {steps}, or remove it" if steps else "remove it: the default is totalSteps"
        edits = (*(use(field, steps) if steps else ()), *remove(field))
        yield Finding(field, "0", "must be above 0", fix, rule="lr-decay", edits=edits)
    elif decay is not None and schedule.warmup_steps > decay:
        what = f"decaySteps {decay}"
        yield above(WARMUP_STEPS, schedule.warmup_steps, decay, what, rule="lr-decay", involved=(field,))
    elif decay is None and steps is not None and schedule.warmup_steps > steps:
        what = f"totalSteps {steps}, the end of the decay"
        yield above(WARMUP_STEPS, schedule.warmup_steps, steps, what, rule="lr-decay", involved=(field, STEPS))


def validate_router_loss(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """routerAuxLossCoef needs whole sequences on a device."""
    coefficient = spec.algorithm.router_aux_loss_coef
    if coefficient and spec.training.context_parallel_size > 1:
        other = "spec.training.contextParallelSize"
        yield conflict("spec.algorithm.routerAuxLossCoef", coefficient, other, rule="router-loss")


def validate_router_bias(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """routerBiasUpdateRate needs a policy without adapters, whose reference has the same routers."""
    rate = spec.algorithm.router_bias_update_rate
    if rate and spec.model and spec.model.lora:
        yield conflict("spec.algorithm.routerBiasUpdateRate", rate, "spec.model.lora", rule="router-bias")


def validate_training_end(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Only one of totalSteps and totalEpochs can be given."""
    steps = spec.training.total_steps
    epochs = spec.training.total_epochs
    if steps and epochs:
        message = f"cannot be combined with totalSteps {steps}"
        yield conflict("spec.training.totalEpochs", epochs, STEPS, message=message, rule="training-end")


def validate_clip_ratio(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """clipRatioLow must not be above clipRatioHigh; the default of both is clipRatio."""
    algorithm = spec.algorithm
    default = algorithm.clip_ratio
    low = algorithm.clip_ratio_low
    high = algorithm.clip_ratio_high
    rule = "clip-ratio"
    if low is not None and low > (default if high is None else high):
        bound = default if high is None else high
        message = f"is above clipRatioHigh {bound}{' (clipRatio)' if high is None else ''}"
        involved = (*([CLIP] if high is None else []), CLIP_LOW, CLIP_HIGH)
        yield replaceable(CLIP_LOW, low, message, bound, rule=rule, involved=involved)
    elif low is None and high is not None and default > high:
        message = f"is below clipRatio {default}"
        yield replaceable(CLIP_HIGH, high, message, default, rule=rule, involved=(CLIP, CLIP_LOW, CLIP_HIGH))


def validate_trl_cispo_clip_ratio(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With convention trl and policyLoss cispo, clipRatioHigh must be at least 1: it is the maximum ratio itself (TRL's
    epsilon_high), not its distance from 1."""
    algorithm = spec.algorithm
    high = algorithm.clip_ratio_high
    if algorithm.convention == "trl" and algorithm.policy_loss == "cispo" and (high is None or high < 1):
        message = "must be 1 or more with trl's cispo, where it is the maximum ratio itself"
        involved = ("spec.algorithm.convention", "spec.algorithm.policyLoss")
        yield replaceable(CLIP_HIGH, high, message, 5.0, rule="clip-ratio", involved=involved)


def validate_critic(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """advEstimator gae needs a critic, and no other estimator uses one."""
    algorithm = spec.algorithm
    field = "spec.algorithm.critic"
    estimator = "spec.algorithm.advEstimator"
    if algorithm.adv_estimator == "gae" and algorithm.critic is None:
        message = "is required by advEstimator gae"
        fix = "add it ({} uses the defaults), or use advEstimator: grpo"
        edits = (*use(field, {}), *use(estimator, "grpo"))
        yield Finding(field, "none", message, fix, rule="critic", involved=(estimator,), edits=edits)
    if algorithm.adv_estimator != "gae" and algorithm.critic is not None and algorithm.advantage_function is None:
        yield not_used(field, f"advEstimator {algorithm.adv_estimator}", or_set={estimator: "gae"}, rule="critic")


def validate_overlong_buffer(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """overlongBuffer.length must not be above maxResponseLength: the penalty starts that many tokens before the end."""
    buffer = spec.algorithm.overlong_buffer
    if buffer and spec.data and buffer.length > spec.data.max_response_length:
        longest = spec.data.max_response_length
        field = "spec.algorithm.overlongBuffer.length"
        what = f"data.maxResponseLength {longest}"
        involved = ("spec.data.maxResponseLength",)
        yield above(field, buffer.length, longest, what, rule="overlong-buffer", involved=involved)


def validate_user_defined_functions(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A user-defined function replaces advEstimator or policyLoss, so only one of the two can be given."""
    given = spec.algorithm.model_fields_set
    for own, field, name, other in (
        ("advantage_function", "advantageFunction", "adv_estimator", "advEstimator"),
        ("policy_loss_function", "policyLossFunction", "policy_loss", "policyLoss"),
    ):
        if getattr(spec.algorithm, own) is not None and name in given:
            path = f"spec.algorithm.{field}"
            message = f"replaces {other}, and both are given"
            yield conflict(path, "given", f"spec.algorithm.{other}", message=message, rule="own-function")


def validate_rollout_correction(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """rejection needs rejectionThreshold, above 1 for k1 statistics; lowerThreshold must be below threshold; bypassMode
    cannot be combined with weights and rejection."""
    correction = spec.algorithm.rollout_correction
    if correction is None:
        return
    if correction.bypass_mode:
        defaults = {"level": ("none", "token"), "threshold": (2.0,)}
        for name, value in correction.to_json().items():
            if name != "bypassMode" and value not in defaults.get(name, (None,)):
                message = "has no effect with bypassMode, which weights and rejects nothing"
                bypass = f"{CORRECTION}.bypassMode"
                yield conflict(f"{CORRECTION}.{name}", str(value), bypass, message=message, rule="bypass-mode")
        return
    rule = "rejection"
    field = f"{CORRECTION}.rejectionThreshold"
    involved = (f"{CORRECTION}.rejection",)
    rejection = correction.rejection
    bound = correction.rejection_threshold
    if rejection is not None and bound is None:
        fix = "add it, such as 1.01 for k1 and 0.001 for k2 and k3"
        example = 1.01 if rejection.endswith("k1") else 0.001
        yield required(field, f"rejection {rejection}", fix, example, rule=rule, involved=involved)
    if rejection is None and bound is not None:
        instead = "add rejection, such as seq_mean_k1"
        yield effect_only_with(field, "rejection", value=bound, instead=instead, rule=rule, involved=involved)
    if rejection and rejection.endswith("k1") and bound is not None and bound <= 1:
        message = "must be above 1: it keeps ratios between 1/threshold and threshold"
        fix = "use a value above 1, such as 1.01"
        yield Finding(field, str(bound), message, fix, rule=rule, involved=involved, edits=use(field, 1.01))
    lower = correction.lower_threshold
    if lower is not None and lower >= correction.threshold:
        field = f"{CORRECTION}.lowerThreshold"
        message = f"is not below threshold {correction.threshold}"
        fix = f"use a value below {correction.threshold}, such as {correction.threshold / 2:g}"
        involved = (f"{CORRECTION}.threshold",)
        edits = use(field, correction.threshold / 2)
        yield Finding(field, str(lower), message, fix, rule=rule, involved=involved, edits=edits)


def validate_top_entropy(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """topEntropyQuantile needs a forward pass for entropies, which rolloutCorrection.bypassMode leaves out, and a
    policy loss of single tokens: policyLoss geo_mean has one of whole responses, and distillation by forward_kl_topk
    without useTaskRewards has none."""
    algorithm = spec.algorithm
    share = algorithm.top_entropy_quantile
    if share == 1:
        return
    field = "spec.algorithm.topEntropyQuantile"
    rule = "top-entropy"
    if algorithm.rollout_correction and algorithm.rollout_correction.bypass_mode:
        message = "needs the forward pass that bypassMode leaves out"
        yield conflict(field, share, f"{CORRECTION}.bypassMode", message=message, rule=rule)
    if algorithm.policy_loss == "geo_mean" and algorithm.policy_loss_function is None:
        message = "selects single tokens, and policyLoss geo_mean has one ratio for a whole response"
        yield conflict(field, share, "spec.algorithm.policyLoss", message=message, rule=rule)
    distillation = algorithm.distillation
    if distillation and distillation.loss_mode == "forward_kl_topk" and not distillation.use_task_rewards:
        message = "selects tokens of the policy loss, which useTaskRewards: false leaves out"
        other = "spec.algorithm.distillation.useTaskRewards"
        yield conflict(field, share, other, message=message, rule=rule)


def validate_covariance(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """policyLoss clip_cov and kl_cov select tokens by the advantages of the rewards, which a distillation by k1
    replaces; clipCovLb must be below clipCovUb."""
    algorithm = spec.algorithm
    loss = algorithm.policy_loss
    rule = "covariance"
    field = "spec.algorithm.policyLoss"
    if loss in ("clip_cov", "kl_cov") and algorithm.distillation and algorithm.distillation.loss_mode == "k1":
        message = "selects tokens by the advantages of the rewards, and algorithm.distillation has others"
        yield conflict(field, loss, "spec.algorithm.distillation", message=message, rule=rule)
    low = algorithm.clip_cov_lb
    high = algorithm.clip_cov_ub
    if low >= high:
        message = f"is not below clipCovUb {high:g}"
        involved = ("spec.algorithm.clipCovUb",)
        yield replaceable("spec.algorithm.clipCovLb", f"{low:g}", message, high - 1, rule=rule, involved=involved)


RULES = (
    validate_lr_decay,
    validate_training_end,
    validate_clip_ratio,
    validate_trl_cispo_clip_ratio,
    validate_critic,
    validate_overlong_buffer,
    validate_user_defined_functions,
    validate_rollout_correction,
    validate_top_entropy,
    validate_covariance,
)
BUILTIN_RULES = (validate_router_loss, validate_router_bias)
