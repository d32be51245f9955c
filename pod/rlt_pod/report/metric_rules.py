"""The rules over the metrics of a training (spec.observability.metricRules). Pure: metrics of steps in, findings out.

The driver evaluates the rules after each step: rlt's trainer, and the program that runs any other command. Both have
metrics under verl's names. It needs only Python 3.8 and its standard library, because it is mounted into images that
rlt does not build.

A rule is broken once the values of `steps` steps in succession are beyond its threshold, and until a value is within
it. A step without the metric counts as no step.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rlt_pod.report.step_phases import GENERATION, TRAINING, describe_idle


class Limit(NamedTuple):
    """When a rule is broken."""

    threshold: float
    """The unit of the rule's value."""
    steps: int
    """Minimum number of steps in succession."""


DEFAULTS: dict[str, Limit] = {
    "noLearningSignal": Limit(1e-6, 10),
    "entropyCollapse": Limit(0.01, 20),
    "klRunaway": Limit(2.0, 10),
    "gradientSpikes": Limit(10.0, 3),
    "rewardHacking": Limit(0.2, 3),
    "truncation": Limit(0.5, 10),
    "offPolicyDrift": Limit(0.05, 10),
    "generationBound": Limit(0.9, 20),
    "trainingBound": Limit(0.9, 20),
    "idleAccelerators": Limit(0.5, 20),
}
"""The default of each rule. The sources are in the description of its field (rlt_api.blocks.metric_rules)."""

GRAD_NORMS = 50
MIN_GRAD_NORMS = 20
"""Number of earlier gradient norms that a norm is compared with, and the minimum."""
MIN_TRUNCATED_LENGTH = 16
"""Responses of tasks with shorter ones, in tokens, are expected to reach the maximum."""
KL = ("actor/kl_loss", "actor/reward_kl_penalty", "critic/kl")
ENTROPY = ("actor/entropy", "actor/entropy_loss")
REWARD = ("critic/rewards/mean", "critic/score/mean")


class Streak(NamedTuple):
    """Steps in succession whose values are beyond the threshold of a rule."""

    step: int
    """The first one."""
    value: float
    """Its value."""
    length: int
    pods: float | None = None
    """Pods that only generate, at each of its steps."""
    proposed: int | None = None
    """The number that its first step proposes instead."""
    advice: str = ""
    """What to change, from the metrics of its first step."""


class BestValidation(NamedTuple):
    """The best validation with the same scores since the start of the driver."""

    step: int
    score: float
    reward: float
    """Mean reward of the training at that step."""


@dataclass(frozen=True)
class MetricHistory:
    """What the rules need of the steps before. `record` returns the next one."""

    step: int = -1
    streaks: Mapping[str, Streak] = field(default_factory=dict)
    """By rule."""
    grad_norms: tuple[float, ...] = ()
    """The latest ones that are finite and not 0."""
    reward: float | None = None
    """The latest one."""
    best: Mapping[tuple[str, ...], BestValidation] = field(default_factory=dict)
    """By the names of its scores: suites that are due at other steps are compared with their own ones."""


class BrokenRule(NamedTuple):
    """A rule that is broken."""

    rule: str
    evidence: str
    """The metric, its value at the first step beyond the threshold, and that step. It is constant until the end."""
    pods: int | None = None
    proposed: int | None = None
    """Pods that only generate, and the number that the rule proposes."""


def record(
    history: MetricHistory, step: int, metrics: Mapping[str, float], limits: Mapping[str, Limit]
) -> MetricHistory:
    """The history after `step`, or after more metrics of the latest step. An earlier step starts another history."""
    if step < history.step:
        history = MetricHistory()
    streaks = dict(history.streaks)
    values = measure(history, metrics)
    for rule in values.keys() & limits.keys():
        value = values[rule]
        before = streaks.pop(rule, None)
        if is_beyond(rule, value, limits[rule].threshold):
            streak = _begin(rule, step, value, metrics, limits[rule].threshold)
            if before and before.pods == streak.pods:
                streak = before
            streaks[rule] = streak._replace(length=streak.length + 1)
    norm = metrics.get("actor/grad_norm")
    scores = _read_validation(metrics)
    reward = _read(metrics, REWARD)
    reward = history.reward if reward is None else reward
    best = dict(history.best)
    if scores and reward is not None:
        names = tuple(sorted(scores))
        score = statistics.fmean(scores.values())
        if names not in best or score > best[names].score:
            best[names] = BestValidation(step, score, reward)
    norms = history.grad_norms
    if norm is not None and math.isfinite(norm) and norm > 0:
        norms = (*norms, norm)[-GRAD_NORMS:]
    return MetricHistory(step, streaks, norms, reward, best)


def forget_streaks(history: MetricHistory) -> MetricHistory:
    """The history of a run that resumes: the earlier steps are known, and each rule needs new ones to be broken."""
    return replace(history, streaks={})


def list_broken(history: MetricHistory, limits: Mapping[str, Limit]) -> list[BrokenRule]:
    """The rules that are broken at the latest step."""
    broken = [
        (rule, history.streaks[rule], limit)
        for rule, limit in limits.items()
        if rule in history.streaks and history.streaks[rule].length >= limit.steps
    ]
    return [
        BrokenRule(rule, _describe(rule, streak, limit), int(streak.pods) if streak.pods else None, streak.proposed)
        for rule, streak, limit in broken
    ]


def is_beyond(rule: str, value: float, threshold: float) -> bool:
    """Whether the value is beyond the threshold of the rule."""
    if rule == "noLearningSignal":
        return value <= threshold
    if rule == "entropyCollapse":
        return value < threshold
    return value > threshold


def measure(history: MetricHistory, metrics: Mapping[str, float]) -> dict[str, float]:
    """The value of each rule whose metrics the step has."""
    values = {
        "noLearningSignal": _measure_advantage(metrics),
        "entropyCollapse": _read(metrics, ENTROPY),
        "klRunaway": _read(metrics, KL, diverged=math.inf),
        "gradientSpikes": _measure_spike(history, metrics),
        "rewardHacking": _measure_lost_validation(history, metrics),
        "truncation": _measure_truncation(metrics),
        "offPolicyDrift": _read(metrics, ("training/rollout_probs_diff_mean",)),
        "generationBound": _measure_share(metrics, GENERATION),
        "trainingBound": _measure_share(metrics, TRAINING),
        "idleAccelerators": _read(metrics, ("perf/idle_share",)),
    }
    return {rule: value for rule, value in values.items() if value is not None}


def _measure_advantage(metrics: Mapping[str, float]) -> float | None:
    """The largest absolute advantage of the batch."""
    largest, smallest = (_read(metrics, (f"critic/advantages/{name}",)) for name in ("max", "min"))
    return None if largest is None or smallest is None else max(abs(largest), abs(smallest))


def _measure_spike(history: MetricHistory, metrics: Mapping[str, float]) -> float | None:
    """The gradient norm as a multiple of the earlier steps' median."""
    norm = metrics.get("actor/grad_norm")
    if norm is None:
        return None
    if not math.isfinite(norm):
        return math.inf
    if len(history.grad_norms) < MIN_GRAD_NORMS:
        return None
    return norm / statistics.median(history.grad_norms)


def _measure_lost_validation(history: MetricHistory, metrics: Mapping[str, float]) -> float | None:
    """The share of the best validation score that is lost, while the reward of the training has not fallen since."""
    scores = _read_validation(metrics)
    reward = _read(metrics, REWARD)
    best = history.best.get(tuple(sorted(scores)))
    if best is None:
        return None
    score = statistics.fmean(scores.values())
    reward = history.reward if reward is None else reward
    if reward is None or reward < best.reward or best.score == 0:
        return 0.0
    return (best.score - score) / abs(best.score)


def _read_validation(metrics: Mapping[str, float]) -> dict[str, float]:
    """The scores of a validation by name: verl's val-core/SOURCE/METRIC/mean@N, or with a suite before SOURCE."""
    return {
        name: value
        for name, value in metrics.items()
        if name.startswith("val-core/") and name.rpartition("/")[2].startswith("mean@") and math.isfinite(value)
    }


def _measure_truncation(metrics: Mapping[str, float]) -> float | None:
    """The share of responses at the maximum length."""
    longest = _read(metrics, ("response_length/max",))
    if longest is not None and longest < MIN_TRUNCATED_LENGTH:
        return None
    return _read(metrics, ("response_length/clip_ratio",))


def _begin(rule: str, step: int, value: float, metrics: Mapping[str, float], threshold: float) -> Streak:
    wanted = {"generationBound": _allow_wait, "trainingBound": _fill_wait}.get(rule)
    if wanted is None:
        return Streak(step, value, 0, advice=describe_idle(metrics) if rule == "idleAccelerators" else "")
    pods = _read(metrics, ("perf/rollout_pods",))
    proposed, advice = propose_pods(metrics, pods, wanted(metrics, threshold), threshold) if pods else (None, "")
    return Streak(step, value, 0, pods, proposed, advice)


def propose_pods(metrics: Mapping[str, float], pods: float, wait: float, threshold: float) -> tuple[int | None, str]:
    """The number of pods that only generate with which the training waits for `wait` seconds, with the arithmetic.

    The time of the generation is taken to be inversely proportional to it, and the part beside the training to be the
    same. None if no other number has this effect, or if a pod has only a part of its engines.
    """
    waited = _read(metrics, ("timing_s/gen",)) or 0.0
    beside = _read(metrics, ("overlap_s/gen",)) or 0.0
    step = _read(metrics, ("timing_s/step",)) or 0.0
    if wait + beside <= 0 or pods != int(pods):
        return None, ""
    wanted = max(1, math.ceil(pods * (waited + beside) / (wait + beside) - 1e-9))
    if wanted == pods:
        return None, ""
    overlap = f" and {beside:.4g} s beside the training" if beside else ""
    return wanted, (
        f". With {pods:.4g} rollout pods, the generation took {waited:.4g} s of the step's {step:.4g} s{overlap}: "
        f"{wanted} pods (spec.rolloutReplicas) would bring the share to {threshold:.4g}"
    )


def _allow_wait(metrics: Mapping[str, float], threshold: float) -> float:
    """The seconds of generation that are this share of a step whose other phases take as long as now."""
    rest = (_read(metrics, ("timing_s/step",)) or 0.0) - (_read(metrics, ("timing_s/gen",)) or 0.0)
    return rest * threshold / (1 - threshold) if threshold < 1 else 0.0


def _fill_wait(metrics: Mapping[str, float], threshold: float) -> float:
    """The seconds of generation beside which the training is this share of a step."""
    rest = (_read(metrics, ("timing_s/step",)) or 0.0) - (_read(metrics, ("timing_s/gen",)) or 0.0)
    training = sum(_read(metrics, (f"timing_s/{phase}",)) or 0.0 for phase in TRAINING)
    return training / threshold - rest if threshold else 0.0


def _measure_share(metrics: Mapping[str, float], phases: Sequence[str]) -> float | None:
    """The share of the step's time in these phases."""
    step = _read(metrics, ("timing_s/step",))
    seconds = [value for value in (_read(metrics, (f"timing_s/{phase}",)) for phase in phases) if value is not None]
    return sum(seconds) / step if step and seconds else None


def _read(metrics: Mapping[str, float], names: Sequence[str], diverged: float | None = None) -> float | None:
    """The value of the first name that the metrics have; `diverged` if it is not finite."""
    value = next((metrics[name] for name in names if name in metrics), None)
    return diverged if value is not None and not math.isfinite(value) else value


VALUES = {
    "noLearningSignal": "the largest absolute advantage (critic/advantages)",
    "entropyCollapse": "actor/entropy",
    "klRunaway": "the KL divergence to the reference model (actor/kl_loss or actor/reward_kl_penalty)",
    "gradientSpikes": "actor/grad_norm as a multiple of its median over the steps before",
    "rewardHacking": "the lost share of the best validation score (val-core), while critic/rewards/mean has not fallen",
    "truncation": "response_length/clip_ratio",
    "offPolicyDrift": "training/rollout_probs_diff_mean",
    "generationBound": "the share of timing_s/gen in timing_s/step",
    "trainingBound": "the share of the updates and log-probabilities in timing_s/step",
    "idleAccelerators": "the share of accelerator time outside of generation, updates, weight syncs and validations "
    "(perf/idle_share)",
}
"""What a rule compares with its threshold."""


def _describe(rule: str, streak: Streak, limit: Limit) -> str:
    """A sentence without a period."""
    side = "not above" if rule == "noLearningSignal" else "below" if rule == "entropyCollapse" else "above"
    unit = "validations" if rule == "rewardHacking" else "steps"
    value = f"{streak.value:.4g}"
    threshold = f"{limit.threshold:.4g}"
    return (
        f"Since step {streak.step}, for {limit.steps} {unit} or more, {VALUES[rule]} is {side} {threshold}: "
        f"{value} at step {streak.step}{streak.advice}"
    )
