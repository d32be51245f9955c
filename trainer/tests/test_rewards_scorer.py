"""A job's reward is a weighted sum. A response that cannot be scored is a failure, not a 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from scoring import score_batch

from rlt_api.blocks.rewards import Reward
from rlt_api.spec.training_config import PRESET_REWARD
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards import sources
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.scorer import Scorer, combine, to_outcomes

FUNCTION = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str == "bad": raise ValueError("bad luck")
    return {"score": float(solution_str == ground_truth) + extra_info["bonus"] + 10 * (data_source == "other"), "x": 1}
"""


def prompt(ground_truth: str, *, data_source: str = "test", **extra_info: Any) -> Prompt:
    return Prompt(0, (1,), "?", ground_truth, ground_truth, data_source, extra_info=extra_info)


def score(
    rewards: list[dict[str, Any]], texts: list[str], prompts: list[Prompt], *elsewhere: dict[str, Outcome]
) -> Scores:
    with Scorer([Reward.model_validate(each) for each in rewards]) as scorer:
        return score_batch(scorer, texts, prompts, *elsewhere)


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A reward whose function is in the ConfigMap `mine`."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "scoring.py").write_text(FUNCTION)
    monkeypatch.setattr(sources, "FUNCTIONS_DIRECTORY", str(tmp_path))
    return {"function": {"name": "scoring:compute_score", "configMap": "mine"}}


def test_rewards_are_weighted_and_added() -> None:
    rewards: list[dict[str, Any]] = [{"name": "exact", "weight": 2.0}, {"name": "gsm8k", "weight": -0.5}]
    scores = score(rewards, ["7", "#### 7", "8"], [prompt("7")] * 3)
    assert scores.total.tolist() == [2.0, -0.5, 0.0]
    assert {name: each.tolist() for name, each in scores.by_reward.items()} == {"exact": [1, 0, 0], "gsm8k": [0, 1, 0]}
    assert not scores.failed.any()
    assert scores.metrics() == {
        "reward/failed": 0.0,
        "reward/exact/mean": pytest.approx(1 / 3),
        "reward/gsm8k/mean": pytest.approx(1 / 3),
    }


def test_one_rule_with_different_options_is_two_rewards() -> None:
    rewards: list[dict[str, Any]] = [
        {"name": "gsm8k"},
        {"name": "gsm8k", "options": {"method": "flexible"}, "weight": 0.5},
    ]
    scores = score(rewards, ["7", "#### 7"], [prompt("7")] * 2)
    assert list(scores.by_reward) == ["gsm8k", "gsm8k-2"]
    assert scores.total.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("preset", "right", "wrong"),
    [
        ("arithmetic", "095", "096"),
        ("bandit", "095", "096"),
        ("digits", "095", "1"),
        ("gsm8k", "#### 095", "095"),
    ],
)
def test_each_preset_has_a_default_rule(preset: str, right: str, wrong: str) -> None:
    scores = score([{"name": PRESET_REWARD[preset]}], [right, wrong], [prompt("095")] * 2)
    assert scores.total.tolist() == [1.0, 0.0]


def test_a_user_defined_function_is_called_as_verl_calls_it(function: dict[str, Any]) -> None:
    prompts = [prompt("7", bonus=0.25), prompt("7", bonus=0), prompt("7", bonus=0, data_source="other")]
    assert score([function], ["7", "8", "7"], prompts).total.tolist() == [1.25, 0.0, 11.0]


def test_a_function_gets_its_options_and_its_variables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "keyed.py").write_text(
        "import os\n"
        "def score(solution_str, bonus, **row):\n"
        "    return bonus + (os.environ.get('TOKEN') == solution_str) + 10 * ('PLAIN' in os.environ)\n"
    )
    monkeypatch.setattr(sources, "FUNCTIONS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("RLT_REWARD_0_TOKEN", "s3cret\n")
    function = {"name": "keyed:score", "configMap": "mine"}
    token = {"name": "TOKEN", "secretKeyRef": {"name": "search", "key": "token"}}
    with_env = {"function": function, "options": {"bonus": 0.5}, "env": [token, {"name": "PLAIN", "value": "1"}]}
    without = {"function": function, "options": {"bonus": 0.25}}
    scores = score([with_env, without], ["s3cret", "other"], [prompt("7")] * 2)
    assert [each.tolist() for each in scores.by_reward.values()] == [[11.5, 10.5], [0.25, 0.25]]


def test_a_missing_key_of_a_secret_is_rejected() -> None:
    env = [{"name": "TOKEN", "secretKeyRef": {"name": "search", "key": "token"}}]
    reward = {"function": {"name": "json:loads"}, "env": env}
    with pytest.raises(
        ValueError, match=r"rewards\[1\].env\[0\]: the variable RLT_REWARD_1_TOKEN has no value. Add the"
    ):
        score([{"name": "exact"}, reward], [], [])


def test_concurrency_is_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call waits until three have started."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "meeting.py").write_text(
        "import os, time\n"
        "def score(folder, **row):\n"
        "    open(f'{folder}/{os.getpid()}', 'w').close()\n"
        "    while len(os.listdir(folder)) < 3: time.sleep(0.01)\n"
        "    return len(os.listdir(folder))\n"
    )
    monkeypatch.setattr(sources, "FUNCTIONS_DIRECTORY", str(tmp_path))
    (folder := tmp_path / "pids").mkdir()
    function = {"name": "meeting:score", "configMap": "mine", "timeoutSeconds": 60}
    reward = {"function": function, "options": {"folder": str(folder)}, "concurrency": 3}
    assert score([reward], ["a"] * 6, [prompt("7")] * 6).total.tolist() == [3.0] * 6


def test_the_rest_of_a_batch_that_hangs_from_the_start_is_skipped(
    function: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_FAILURES", 2)
    (tmp_path / "mine" / "scoring.py").write_text("import time\ndef compute_score(**row): time.sleep(3600)")
    reward = {"function": {**function["function"], "timeoutSeconds": 0.1}, "concurrency": 1}
    with Scorer([Reward.model_validate(reward)]) as scorer:
        for _ in range(2):  # the failures of the first batch do not count in the second
            with pytest.raises(TrainingError, match="failed for 5 of 5 responses: it did not end within"):
                score_batch(scorer, ["7"] * 5, [prompt("7")] * 5)
        batches = [scorer.open_batch() for _ in range(2)]  # of batches at the same time, each has its failures
        scoring = [batch.start("7", prompt("7")) for _ in range(4) for batch in batches]
        outcomes = [each.result()["scoring:compute_score"] for each in scoring]
    was_called = [isinstance(outcome, Failure) and outcome.was_called for outcome in outcomes]
    assert was_called == [True] * 4 + [False] * 4


def test_a_batch_without_rewards_is_an_error() -> None:
    with pytest.raises(TrainingError, match=r"spec.rewards is empty, and the environment returned no reward. Add a"):
        score([], ["7"], [prompt("7")])
    assert score([], ["7"], [prompt("7")], {"environment": 0.5}).total.tolist() == [0.5]


def test_a_failed_response_is_masked_counted_and_logged(
    function: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    scores = score([{"name": "exact"}, function], ["7", "bad", "8"], [prompt("7", bonus=0)] * 3)
    assert scores.failed.tolist() == [False, True, False]
    assert scores.total.isnan().tolist() == [False, True, False]
    assert scores.by_reward["exact"].tolist() == [1.0, 0.0, 0.0]
    assert scores.reasons == {"scoring:compute_score/raised": 1}
    assert scores.metrics()["reward/failed/scoring:compute_score/raised"] == 1.0
    assert scores.metrics()["reward/scoring:compute_score/mean"] == 0.5
    assert "failed for 1 of 3 responses: ValueError: bad luck" in caplog.text


def test_a_batch_without_any_score_is_an_error(function: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=r"No response .* failed for 2 of 2 responses: ValueError: bad luck"):
        score([function], ["bad", "bad"], [prompt("7")] * 2)


def test_a_pattern_that_backtracks_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RULE_TIMEOUT_S", 0.5)
    scores = score([{"name": "regex", "options": {"pattern": "(a+)+b"}}], ["aab", "a" * 64], [prompt("")] * 2)
    assert scores.by_reward["regex"].tolist() == [1.0, 0.0]  # the response that made the rule hang scores 0
    assert scores.reasons == {"regex/timed_out": 1}
    with pytest.raises(TrainingError, match=r"No response .* failed for 1 of 1 responses"):  # the rule may be broken
        score([{"name": "regex", "options": {"pattern": "(a+)+b"}}], ["a" * 64], [prompt("")])


def test_the_failure_of_a_response_is_that_of_its_environment_or_of_its_first_reward() -> None:
    raised = Failure("raised", "no number")
    lost = Failure("environment", "sandbox pod a was lost")
    outcomes: dict[str, list[Outcome]] = {"math": [1.0, raised, raised], "environment": [0.0, 0.0, lost]}
    scores = combine(outcomes, {"math": 1.0, "environment": 1.0})
    assert scores.failures == (None, "math: no number", "environment: sandbox pod a was lost")


def test_the_timeout_of_a_function_is_a_failure() -> None:
    hanging = Failure("timed_out", "")
    skipped = Failure("timed_out", "", was_called=False)
    outcomes: dict[str, list[Outcome]] = {"fetch": [1.0, hanging, 1.0], "math": [hanging, 0.5, skipped]}
    scores = combine(outcomes, {"fetch": 1.0, "math": 1.0}, rules={"math"})
    assert scores.total.nan_to_num(-1).tolist() == [1.0, -1.0, -1.0]
    assert scores.reasons == {"fetch/timed_out": 1, "math/timed_out": 2}


def test_math_is_the_rule_of_preset_math_and_fails_if_the_answer_cannot_be_parsed() -> None:
    texts = [r"\boxed{95}", r"\boxed{96}", "95"]
    truths = ["095", "095", ""]
    scores = score([{"name": PRESET_REWARD["math"]}], texts, [prompt(truth) for truth in truths])
    assert scores.total.nan_to_num(-1).tolist() == [1.0, 0.0, -1.0]
    assert scores.reasons == {"math/raised": 1}


def test_scores_of_models_and_environments_are_added() -> None:
    rewards: list[dict[str, Any]] = [{"name": "exact"}, {"model": "/models/judge", "weight": 0.5}]
    by_model = to_outcomes(torch.tensor([2.0, torch.nan]))
    elsewhere = [{"judge": by_model[0], "environment": 0.25}, {"judge": by_model[1]}]
    scores = score(rewards, ["7", "7"], [prompt("7")] * 2, *elsewhere)
    assert scores.total.nan_to_num(-1).tolist() == [2.25, -1.0]
    assert scores.reasons == {"judge/not_finite": 1}
    assert list(scores.by_reward) == ["exact", "judge", "environment"]


def test_reward_models_are_listed_with_their_paths() -> None:
    with Scorer([Reward(name="exact"), Reward(model="/models/judge")]) as scorer:
        assert scorer.models == {"judge": "/models/judge"}


@pytest.mark.parametrize(
    ("name", "nearest"), [("exct", "exact"), ("gsm8", "gsm8k"), ("openai.gsm8k", "gsm8k"), ("zzz", "")]
)
def test_an_unknown_rule_is_rejected_with_the_known_rules_and_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f'"{name}".*characters, exact, format, gsm8k.*did you mean "{nearest}'):
        Scorer([Reward(name=name)])


def test_a_missing_function_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"rewards: function nowhere:score: .* No module named 'nowhere'"):
        Scorer([Reward.model_validate({"function": {"name": "nowhere:score"}})])
