"""The rules over the metrics: a broken, a healthy and a boundary case of each, and no finding in runs that learn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from rlt_api.blocks.metric_rules import MetricRules, build_limits, list_rules_with_action
from rlt_pod.report.metric_rules import (
    DEFAULTS,
    MIN_GRAD_NORMS,
    VALUES,
    BrokenRule,
    Limit,
    MetricHistory,
    forget_streaks,
    list_broken,
    record,
)

HEALTHY_RUNS = Path(__file__).parent / "healthy_runs"
Metrics = Mapping[str, float]


def advantages(value: float) -> Metrics:
    return {"critic/advantages/max": value, "critic/advantages/min": -value}


def phases(share: float, *names: str) -> Metrics:
    return {"timing_s/step": 100.0, **{f"timing_s/{name}": 100 * share / len(names) for name in names}}


def replay(steps: Iterable[Metrics], limits: Mapping[str, Limit] = DEFAULTS) -> MetricHistory:
    history = MetricHistory()
    for number, metrics in enumerate(steps, 1):
        history = record(history, number, metrics, limits)
    return history


def find_broken(steps: Iterable[Metrics], limits: Mapping[str, Limit] = DEFAULTS) -> list[str]:
    return [each.rule for each in list_broken(replay(steps, limits), limits)]


UPDATE = ("old_log_prob", "ref", "update_actor")
# rule: a value beyond the default threshold, a healthy one, and the last one that is within the threshold
VALUE_CASES: dict[str, tuple[Metrics, Metrics, Metrics]] = {
    "noLearningSignal": (advantages(0.0), advantages(1.8), advantages(1.1e-6)),
    "entropyCollapse": ({"actor/entropy": 0.001}, {"actor/entropy": 0.3}, {"actor/entropy": 0.01}),
    "klRunaway": ({"actor/kl_loss": 2.5}, {"actor/kl_loss": 0.01}, {"actor/kl_loss": 2.0}),
    "truncation": (
        {"response_length/max": 1024.0, "response_length/clip_ratio": 0.9},
        {"response_length/max": 1024.0, "response_length/clip_ratio": 0.02},
        {"response_length/max": 1024.0, "response_length/clip_ratio": 0.5},
    ),
    "offPolicyDrift": (
        {"training/rollout_probs_diff_mean": 0.2},
        {"training/rollout_probs_diff_mean": 0.004},
        {"training/rollout_probs_diff_mean": 0.05},
    ),
    "generationBound": (phases(0.95, "gen"), phases(0.6, "gen"), phases(0.9, "gen")),
    "trainingBound": (phases(0.95, *UPDATE), phases(0.6, *UPDATE), phases(0.9, "update_actor")),
    "idleAccelerators": ({"perf/idle_share": 0.7}, {"perf/idle_share": 0.1}, {"perf/idle_share": 0.5}),
}
BEYOND = {rule: case[0] for rule, case in VALUE_CASES.items()}
HEALTHY = {rule: case[1] for rule, case in VALUE_CASES.items()}
BOUNDARY = {rule: case[2] for rule, case in VALUE_CASES.items()}


@pytest.mark.parametrize("rule", VALUE_CASES)
def test_a_rule_is_broken_after_its_number_of_steps(rule: str) -> None:
    steps = DEFAULTS[rule].steps
    assert find_broken([BEYOND[rule]] * steps) == [rule]
    assert find_broken([BEYOND[rule]] * (steps - 1)) == []


@pytest.mark.parametrize("rule", VALUE_CASES)
def test_values_up_to_the_threshold_are_healthy(rule: str) -> None:
    steps = 2 * DEFAULTS[rule].steps
    assert find_broken([HEALTHY[rule]] * steps) == []
    assert find_broken([BOUNDARY[rule]] * steps) == []


@pytest.mark.parametrize("rule", VALUE_CASES)
def test_a_healthy_step_ends_the_finding(rule: str) -> None:
    steps = DEFAULTS[rule].steps
    assert find_broken([*[BEYOND[rule]] * steps, HEALTHY[rule]]) == []
    assert find_broken([*[BEYOND[rule]] * (steps - 1), HEALTHY[rule], BEYOND[rule]]) == []


def test_steps_without_the_metric_count_as_no_step() -> None:
    steps = DEFAULTS["klRunaway"].steps
    with_gap = [BEYOND["klRunaway"], {"critic/rewards/mean": 0.5}] * steps
    assert find_broken(with_gap) == ["klRunaway"]
    assert find_broken(with_gap[: 2 * steps - 2]) == []


@pytest.mark.parametrize("name", ["actor/reward_kl_penalty", "critic/kl"])
def test_the_divergence_in_the_reward_counts_too(name: str) -> None:
    assert find_broken([{name: 2.5}] * 10) == ["klRunaway"]


def test_a_divergence_that_is_not_finite_is_a_runaway() -> None:
    assert find_broken([{"actor/kl_loss": math.nan}] * 10) == ["klRunaway"]


@pytest.mark.parametrize(
    ("rule", "step", "advice"),
    [
        # 95 / 5 s of the rest; 45 / 5 s would be 0.9: 4 x 95 / 45 = 8.4
        ("generationBound", {**phases(0.95, "gen"), "perf/rollout_pods": 4.0}, "9 pods (spec.rolloutReplicas)"),
        # beside it 20 s more: 4 x 115 / 65 = 7.1
        ("generationBound", {**phases(0.95, "gen"), "perf/rollout_pods": 4.0, "overlap_s/gen": 20.0}, "8 pods "),
        # 95 / 0.9 - 97 = 8.6 s for 3 s of 8 pods: 8 x 3 / 8.6 = 2.8
        ("trainingBound", {**phases(0.95, "update_actor"), "timing_s/gen": 3.0, "perf/rollout_pods": 8.0}, "3 pods "),
        ("generationBound", phases(0.95, "gen"), ""),
        ("trainingBound", {**phases(0.95, "update_actor"), "timing_s/gen": 3.0, "perf/rollout_pods": 1.0}, ""),
    ],
)
def test_a_number_of_rollout_pods_is_proposed_with_its_arithmetic(rule: str, step: Metrics, advice: str) -> None:
    (broken,) = list_broken(replay([step] * 20), DEFAULTS)
    assert broken.rule == rule
    assert ("would bring the share to 0.9" in broken.evidence) == bool(advice)
    assert advice in broken.evidence


def test_the_proposal_is_for_steps_with_the_same_number_of_pods() -> None:
    steps = DEFAULTS["generationBound"].steps
    four, eight = ({**phases(0.95, "gen"), "perf/rollout_pods": pods} for pods in (4.0, 8.0))
    (broken,) = list_broken(replay([four] * steps), DEFAULTS)
    assert (broken.pods, broken.proposed) == (4, 9)
    assert list_broken(replay([four] * steps + [eight] * (steps - 1)), DEFAULTS) == []
    (broken,) = list_broken(replay([four] * steps + [eight] * steps), DEFAULTS)
    assert (broken.pods, broken.proposed) == (8, 17)


@pytest.mark.parametrize("pods", [2.5, math.nan])
def test_a_part_of_a_pod_gives_no_proposal(pods: float) -> None:
    (broken,) = list_broken(replay([{**phases(0.95, "gen"), "perf/rollout_pods": pods}] * 20), DEFAULTS)
    assert broken.proposed is None


TIMES = {"timing_s/step": 95.0, "timing_s/gen": 30.0, "timing_s/update_actor": 8.0, "timing_s/update_weights": 2.0}
SEPARATE = {**TIMES, "perf/idle_share": 0.6, "perf/rollout_pods": 2.0, "timing_s/old_log_prob": 20.0}


@pytest.mark.parametrize(
    ("step", "advice"),
    [
        (
            {**TIMES, "perf/idle_share": 0.6, "timing_s/reward": 45.0, "timing_s/adv": 10.0},
            "40 s of 100 s used the accelerators. Of the other 60 s, reward took 45 s (75%): raise spec.rewards[].conc",
        ),
        (
            {**TIMES, "perf/idle_share": 0.6, "timing_s/save_checkpoint": 30.0, "timing_s/reward": 25.0},
            "Of the other 60 s, save_checkpoint took 30 s (50%): raise spec.checkpoint.saveFreq",
        ),
        (
            {**TIMES, "timing_s/step": 45.0, "perf/idle_share": 0.6, "timing_s/reward": 5.0},
            "the time between two steps took 55 s (92%): raise spec.cluster.head.resources.cpu",
        ),
        (
            SEPARATE,
            "Of the step's 95 s, the accelerators that train were idle for 65 s, 30 s of them in gen, and those that "
            "only generate for 63 s, 28 s of them in updates and log-probabilities: set spec.rollout.staleness",
        ),
        (
            {**SEPARATE, "overlap_s/gen": 20.0},
            "only generate for 43 s, 28 s of them in updates and log-probabilities: "
            "move replicas to the group that generates",
        ),
        ({**SEPARATE, "overlap_s/gen": 1.0, "timing_s/gen": 5.0}, "move replicas to the group that trains"),
        ({**TIMES, "perf/idle_share": 1.0}, ""),
        ({"perf/idle_share": 0.6, "timing_s/step": 95.0}, ""),
    ],
)
def test_idle_accelerators_are_explained_with_the_arithmetic(step: Metrics, advice: str) -> None:
    (broken,) = list_broken(replay([step] * 20), DEFAULTS)
    assert broken.rule == "idleAccelerators"
    assert advice in broken.evidence
    assert broken.evidence.endswith("at step 1") == (not advice)


def test_the_evidence_is_constant_while_a_rule_is_broken() -> None:
    healthy = [{"actor/entropy": 0.5}] * 4
    falling = [{"actor/entropy": 0.009 / step} for step in range(1, 60)]
    found = {
        tuple(list_broken(replay([*healthy, *falling[:steps]]), DEFAULTS))
        for steps in range(DEFAULTS["entropyCollapse"].steps, len(falling))
    }
    evidence = "Since step 5, for 20 steps or more, actor/entropy is below 0.01: 0.009 at step 5"
    assert found == {(BrokenRule("entropyCollapse", evidence),)}


def norms(*values: float) -> list[Metrics]:
    return [{"actor/grad_norm": value} for value in values]


NORMS = norms(*[0.5, 1.0, 2.0] * 10)
"""Their median is 1."""


@pytest.mark.parametrize("spike", [10.1, 500.0, math.inf, math.nan])
def test_gradients_of_several_steps_above_ten_times_the_median_are_spikes(spike: float) -> None:
    assert find_broken([*NORMS, *norms(spike, spike, spike)]) == ["gradientSpikes"]
    assert find_broken([*NORMS, *norms(spike, spike)]) == []


def test_gradients_up_to_ten_times_the_median_are_healthy() -> None:
    assert find_broken([*NORMS, *norms(10.0, 10.0, 10.0)]) == []


def test_outliers_and_steps_without_a_signal_are_not_spikes() -> None:
    assert find_broken([*NORMS, *norms(50.0, 1.0, 50.0, 1.0, 50.0)]) == []
    assert find_broken(norms(*[0.0] * 40, 1.0, 1.0, 1.0)) == []


def test_a_higher_level_of_the_gradient_becomes_the_median() -> None:
    raised = norms(*[20.0] * 40)
    assert find_broken([*NORMS, *raised[:10]]) == ["gradientSpikes"]
    assert find_broken([*NORMS, *raised]) == []


def validations(*scores: float, rewards: tuple[float, ...]) -> list[Metrics]:
    """Two steps without and one with validation, as of a suite with every: 3."""
    steps: list[Metrics] = []
    for score, reward in zip(scores, rewards, strict=True):
        step = {"critic/rewards/mean": reward}
        steps += [step, step, {**step, "val-core/a/reward/mean@1": score, "val-core/b/reward/mean@1": score}]
    return steps


RISING = (0.2, 0.4, 0.6, 0.7, 0.8)


def test_a_validation_that_falls_while_the_reward_rises_is_reward_hacking() -> None:
    assert find_broken(validations(0.3, 0.5, 0.39, 0.35, 0.3, rewards=RISING)) == ["rewardHacking"]
    assert find_broken(validations(0.3, 0.5, 0.39, 0.35, 0.41, rewards=RISING)) == []


def test_a_validation_that_keeps_four_fifths_of_its_best_is_healthy() -> None:
    assert find_broken(validations(0.3, 0.5, 0.4, 0.4, 0.4, rewards=RISING)) == []
    assert find_broken(validations(0.3, 0.5, 0.52, 0.55, 0.6, rewards=RISING)) == []


def test_a_validation_that_falls_with_the_reward_is_not_reward_hacking() -> None:
    assert find_broken(validations(0.3, 0.5, 0.3, 0.2, 0.1, rewards=(0.2, 0.4, 0.3, 0.2, 0.1))) == []


def test_a_negative_validation_score_can_be_lost() -> None:
    assert find_broken(validations(-2.0, -1.0, -1.3, -1.3, -1.3, rewards=RISING)) == ["rewardHacking"]


def test_the_validation_before_the_first_step_counts_from_the_first_reward_on() -> None:
    history = record(MetricHistory(), 0, {"val-core/a/reward/mean@1": 0.9}, DEFAULTS)
    assert history.best == {}


def test_suites_of_other_steps_are_compared_with_themselves() -> None:
    """The suite a runs after each step, and the harder suite b after two of three."""
    steps: list[Metrics] = []
    for step in range(12):
        scores = {"val-core/a/sums/reward/mean@1": 0.9, **({"val-core/b/sums/reward/mean@1": 0.1} if step % 3 else {})}
        steps.append({"critic/rewards/mean": 0.5 + step / 100, **scores})
    assert find_broken(steps) == []
    falling = [{**step, "val-core/a/sums/reward/mean@1": 0.9 - 0.1 * n} for n, step in enumerate(steps)]
    assert find_broken(falling) == ["rewardHacking"]


def test_short_answers_are_not_truncated() -> None:
    step = {"response_length/max": 5.0, "response_length/clip_ratio": 1.0}
    assert find_broken([step] * 20) == []
    assert find_broken([{**step, "response_length/max": 16.0}] * 20) == ["truncation"]


def test_a_resumed_run_keeps_its_median_and_needs_new_steps() -> None:
    spikes = [*NORMS, *norms(50.0, 50.0, 50.0)]
    resumed = forget_streaks(replay(spikes))
    assert list_broken(resumed, DEFAULTS) == []
    for step in range(3):
        resumed = record(resumed, len(spikes) + 1 + step, {"actor/grad_norm": 50.0}, DEFAULTS)
    assert [each.rule for each in list_broken(resumed, DEFAULTS)] == ["gradientSpikes"]


def test_an_earlier_step_starts_again() -> None:
    history = record(replay([BEYOND["klRunaway"]] * 10), 3, BEYOND["klRunaway"], DEFAULTS)
    assert (history.step, list_broken(history, DEFAULTS)) == (3, [])


def test_more_metrics_of_a_step_do_not_start_again() -> None:
    history = record(replay([BEYOND["klRunaway"]] * 10), 10, {"val-core/a/reward/mean@1": 0.5}, DEFAULTS)
    assert [each.rule for each in list_broken(history, DEFAULTS)] == ["klRunaway"]


def test_limits_are_read_from_the_spec() -> None:
    rules = MetricRules.model_validate(
        {"entropyCollapse": {"threshold": 0.5, "steps": 2}, "klRunaway": {"action": "none"}}
    )
    limits = build_limits(rules)
    assert limits == {
        **{name: limit for name, limit in DEFAULTS.items() if name != "klRunaway"},
        "entropyCollapse": (0.5, 2),
    }
    assert find_broken([{"actor/entropy": 0.4, "actor/kl_loss": 9.0}] * 20, limits) == ["entropyCollapse"]


@pytest.mark.parametrize("rule", DEFAULTS)
def test_each_field_of_each_rule_counts(rule: str) -> None:
    changed = MetricRules.model_validate({rule: {"threshold": 1, "steps": 7, "action": "pause"}})
    assert build_limits(changed) == {**DEFAULTS, rule: Limit(1.0, 7)}
    assert list_rules_with_action(changed, "pause") == [rule]


def test_the_api_has_the_programs_defaults() -> None:
    assert build_limits(MetricRules()) == DEFAULTS
    assert set(VALUES) == set(DEFAULTS)


def read_run(file: Path) -> list[Metrics]:
    """The metrics of each step, from columns: name -> values of all steps, null where a step has none.

    The files are the metrics.jsonl from runs of trainer/tests/test_learning.py and examples/01-arithmetic-grpo.yaml
    with one train worker and the engine transformers, without the metrics that no rule reads.
    """
    columns = json.loads(file.read_text())
    count = max(map(len, columns.values()))
    return [
        {name: values[step] for name, values in columns.items() if values[step] is not None} for step in range(count)
    ]


@pytest.mark.parametrize("file", sorted(HEALTHY_RUNS.glob("*.json")), ids=lambda file: file.stem)
def test_runs_that_learn_have_no_finding(file: Path) -> None:
    found = set()
    history = MetricHistory()
    for number, metrics in enumerate(read_run(file), 1):
        history = record(history, number, metrics, DEFAULTS)
        found |= {each.rule for each in list_broken(history, DEFAULTS)}
    assert found == set()
    assert history.step > 30
    assert len(history.grad_norms) > MIN_GRAD_NORMS
