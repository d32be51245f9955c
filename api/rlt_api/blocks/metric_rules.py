"""spec.observability.metricRules: thresholds for metrics. rlt_pod.report.metric_rules evaluates them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rlt_api.model import ApiModel, Probability
from rlt_pod.report.metric_rules import DEFAULTS, Limit

Steps = Annotated[int, Field(ge=1, le=1000)]


class MetricRule(ApiModel):
    """A rule over one metric."""

    action: Literal["none", "warn", "pause"] = "warn"
    """What happens when the rule is broken. none: nothing. warn: an entry in status.findings and an event. pause: then
    the job also stops with a checkpoint and releases its cluster, as with suspend, until `rlt resume` or a change of
    its spec."""


class NoLearningSignal(MetricRule):
    """All advantages are 0, because the responses to each prompt have the same reward."""

    threshold: Annotated[float, Field(ge=0, le=1)] = DEFAULTS["noLearningSignal"].threshold
    """Maximum absolute advantage (critic/advantages) that counts as 0. The default is the epsilon by which verl's GRPO
    divides."""
    steps: Steps = DEFAULTS["noLearningSignal"].steps
    """Number of steps in succession at or below the threshold."""


class EntropyCollapse(MetricRule):
    """The responses of the policy are almost equal."""

    threshold: Annotated[float, Field(gt=0, le=20)] = DEFAULTS["entropyCollapse"].threshold
    """Minimum mean entropy of the next-token distribution, in nats (actor/entropy). In arXiv:2505.22617, performance
    saturates as the entropy approaches 0."""
    steps: Steps = DEFAULTS["entropyCollapse"].steps
    """Number of steps in succession below the threshold."""


class KlRunaway(MetricRule):
    """The policy moves far from the reference model."""

    threshold: Annotated[float, Field(gt=0, le=1000)] = DEFAULTS["klRunaway"].threshold
    """Maximum KL divergence to the reference model per token, in nats (actor/kl_loss, or actor/reward_kl_penalty). The
    target of verl's adaptive controller is 0.1 (target_kl); examples/01-arithmetic-grpo.yaml, which learns, reaches
    1.4."""
    steps: Steps = DEFAULTS["klRunaway"].steps
    """Number of steps in succession above the threshold."""


class GradientSpikes(MetricRule):
    """The gradient is much larger than before, or not finite."""

    threshold: Annotated[float, Field(ge=1, le=1000000)] = DEFAULTS["gradientSpikes"].threshold
    """Maximum gradient norm (actor/grad_norm), as a multiple of its median over the 50 steps before. arXiv:2501.06842
    calls a gradient of 50 times its mean a spike."""
    steps: Steps = DEFAULTS["gradientSpikes"].steps
    """Number of steps in succession above the threshold. Fewer are outliers that the optimizer recovers from."""


class RewardHacking(MetricRule):
    """The reward of the training rises, and the validation falls: arXiv:2210.10760."""

    threshold: Probability = DEFAULTS["rewardHacking"].threshold
    """Maximum share of the best validation score (val-core) that may be lost while the mean reward of the training
    (critic/rewards/mean) is not below its value at the best validation."""
    steps: Steps = DEFAULTS["rewardHacking"].steps
    """Number of validations in succession above the threshold."""


class Truncation(MetricRule):
    """Responses are cut off before their answer."""

    threshold: Probability = DEFAULTS["truncation"].threshold
    """Maximum share of responses of the maximum length (response_length/clip_ratio). Tasks with responses of less than
    16 tokens are exempt. arXiv:2503.14476, section 3.4, describes the noise of their rewards."""
    steps: Steps = DEFAULTS["truncation"].steps
    """Number of steps in succession above the threshold."""


class OffPolicyDrift(MetricRule):
    """Rollout engine and trainer have different probabilities, because of stale weights or of another computation."""

    threshold: Probability = DEFAULTS["offPolicyDrift"].threshold
    """Maximum mean difference between token probabilities (training/rollout_probs_diff_mean). Below 0.005 is healthy
    without staleness (verl's FAQ), 0.2 is stale weights (huggingface/trl#5312). Runs that learn with
    rollout.staleness.maxSteps 1 reach 0.03."""
    steps: Steps = DEFAULTS["offPolicyDrift"].steps
    """Number of steps in succession above the threshold."""


class GenerationBound(MetricRule):
    """The trainer waits for responses most of the time."""

    threshold: Probability = DEFAULTS["generationBound"].threshold
    """Maximum share of a step in the generation (timing_s/gen). arXiv:2405.11143 reports 0.9 for long responses."""
    steps: Steps = DEFAULTS["generationBound"].steps
    """Number of steps in succession above the threshold."""


class TrainingBound(MetricRule):
    """The rollout engines wait for the trainer most of the time."""

    threshold: Probability = DEFAULTS["trainingBound"].threshold
    """Maximum share of a step in updates and log-probabilities (timing_s/update_actor, update_critic, old_log_prob, ref
    and values)."""
    steps: Steps = DEFAULTS["trainingBound"].steps
    """Number of steps in succession above the threshold."""


class IdleAccelerators(MetricRule):
    """The accelerators wait most of the time."""

    threshold: Probability = DEFAULTS["idleAccelerators"].threshold
    """Maximum share of a step, over all accelerators, outside of generation, updates, weight syncs and validations
    (perf/idle_share, of framework.type builtin with accelerators). With rollout.mode separate and as many accelerators
    in both groups, it is at least 0.5 without rollout.staleness: each group waits for the other."""
    steps: Steps = DEFAULTS["idleAccelerators"].steps
    """Number of steps in succession above the threshold."""


class MetricRules(ApiModel):
    """Rules over the metrics that each step reports, for every framework that prints verl's step lines. A rule without
    its metrics has no effect."""

    no_learning_signal: NoLearningSignal = NoLearningSignal()
    """All advantages are 0."""
    entropy_collapse: EntropyCollapse = EntropyCollapse()
    """The entropy is near 0."""
    kl_runaway: KlRunaway = KlRunaway()
    """The KL divergence to the reference model is high."""
    gradient_spikes: GradientSpikes = GradientSpikes()
    """The gradient norm is a multiple of what it was."""
    reward_hacking: RewardHacking = RewardHacking()
    """The reward rises while the validation falls."""
    truncation: Truncation = Truncation()
    """Many responses are truncated."""
    off_policy_drift: OffPolicyDrift = OffPolicyDrift()
    """Engine and trainer have different probabilities."""
    generation_bound: GenerationBound = GenerationBound()
    """The generation takes most of a step."""
    training_bound: TrainingBound = TrainingBound()
    """The updates take most of a step."""
    idle_accelerators: IdleAccelerators = IdleAccelerators()
    """Most of the accelerator time is unused."""


def build_limits(rules: MetricRules) -> dict[str, Limit]:
    """Rule -> its limit, without the rules whose action is none."""
    return {name: Limit(rule.threshold, rule.steps) for name, rule in _list(rules) if rule.action != "none"}


def list_rules_with_action(rules: MetricRules, action: str) -> list[str]:
    """The rules with this action."""
    return [name for name, rule in _list(rules) if rule.action == action]


def _list(rules: MetricRules) -> list[tuple[str, Any]]:
    """Name in the API and rule."""
    return [(field.alias or name, getattr(rules, name)) for name, field in MetricRules.model_fields.items()]
