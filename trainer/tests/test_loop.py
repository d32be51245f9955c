"""Whole steps of the real loop, with one rank in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import train

from rlt_api.training_config import TrainingConfig
from rlt_trainer.algorithms import custom
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards import sources

pytestmark = pytest.mark.slow

MakeConfig = Callable[..., TrainingConfig]
ONE_RANK = {"workers": 1}


def test_the_first_step_is_on_policy(make_config: MakeConfig) -> None:
    training = {"totalSteps": 1, "ppoMiniBatchSize": 8}
    (step,) = train(make_config(**ONE_RANK, training=training, algorithm={"klLossCoef": 0.1, "clipRatioC": 3.0}))
    for name in ("pg_clipfrac", "pg_clipfrac_lower", "ppo_kl", "kl_loss"):
        assert step[f"actor/{name}"] == 0.0, name


def test_equal_rewards_give_no_gradient(make_config: MakeConfig) -> None:
    rewards = [{"name": "length", "options": {"max": 1000}}]
    (step,) = train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm={"klLossCoef": 0}, rewards=rewards))
    assert step["critic/score/min"] == step["critic/score/max"] == 1.0
    assert step["actor/grad_norm"] == 0.0


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts the module `mine` where the operator mounts the ConfigMap `functions`."""

    def write(source: str) -> None:
        (tmp_path / "functions").mkdir()
        (tmp_path / "functions/mine.py").write_text(source)

    for module in (sources, custom):
        monkeypatch.setattr(module, "FUNCTIONS_DIRECTORY", str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return write


def test_a_response_whose_reward_fails_is_left_out(
    make_config: MakeConfig, tmp_path: Path, own_module: Callable[[str], None]
) -> None:
    own_module(
        "def score(data_source, solution_str, ground_truth, extra_info):\n"
        "    if len(solution_str) % 2:\n"
        "        raise RuntimeError('odd')\n"
        "    return float(len(solution_str))\n"
    )
    rewards = [{"function": {"name": "mine:score", "configMap": "functions"}}]
    (step,) = train(make_config(**ONE_RANK, training={"totalSteps": 1}, rewards=rewards))
    failed = step["reward/failed"]
    assert 0 < failed < 32
    lines = (tmp_path / "run/rollouts/step-1.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["reward"] is None for line in lines) == failed


def test_dynamic_sampling_takes_only_groups_that_differ(make_config: MakeConfig) -> None:
    algorithm = {"filterGroups": {"metric": "score", "maxNumGenBatches": 30}}
    rewards = [{"name": "regex", "options": {"pattern": "[a-zA-Z]"}}]
    (step,) = train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm=algorithm, rewards=rewards))
    assert step["train/num_gen_batches"] > 1
    assert step["data/prompts_consumed"] == 8 * step["train/num_gen_batches"]
    assert 0 < step["critic/score/mean"] < 1


def test_dynamic_sampling_that_finds_nothing_says_so(make_config: MakeConfig) -> None:
    algorithm = {"filterGroups": {"metric": "score", "maxNumGenBatches": 2}}
    rewards = [{"name": "length", "options": {"max": 1000}}]
    with pytest.raises(TrainingError, match="After 2 generations only 0 of 8 prompts"):
        train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm=algorithm, rewards=rewards))


def test_functions_of_the_users_own(make_config: MakeConfig, tmp_path: Path, own_module: Callable[[str], None]) -> None:
    own_module(
        "from rlt_trainer.algorithms.advantages import ESTIMATORS\n"
        "from rlt_trainer.algorithms.losses import POLICY_LOSSES\n"
        "def advantage(inputs):\n"
        "    return ESTIMATORS['rloo'](inputs)\n"
        "def loss(inputs):\n"
        "    return POLICY_LOSSES['gspo'](inputs)\n"
    )
    own = {
        "advantageFunction": {"name": "mine:advantage", "configMap": "functions"},
        "policyLossFunction": {"name": "mine:loss", "configMap": "functions"},
    }
    named = {"advEstimator": "rloo", "policyLoss": "gspo"}
    runs = [
        train(make_config(**ONE_RANK, algorithm=algorithm, runDirectory=str(tmp_path / name)))
        for name, algorithm in (("own", own), ("named", named))
    ]
    assert [step["actor/pg_loss"] for step in runs[0]] == [step["actor/pg_loss"] for step in runs[1]]


@pytest.mark.parametrize(
    "algorithm",
    [
        {"advEstimator": "remax"},
        {"advEstimator": "opo", "policyLoss": "cispo", "entropyCoeff": 0.01},
        {"advEstimator": "reinforce_plus_plus", "klLossCoef": 0, "klInReward": {"type": "adaptive"}},
        {"advEstimator": "gae", "lam": 0.95, "critic": {"warmupSteps": 1}, "klLossType": "low_var_kl+"},
        {"rolloutCorrection": {"rejection": "token_k2", "rejectionThreshold": 1.0}, "policyLoss": "sapo"},
        {"overlongBuffer": {"length": 2}, "lossAggMode": "seq-mean-token-sum-norm", "clipRatioHigh": 0.28},
    ],
    ids=lambda algorithm: "-".join(algorithm),
)
def test_every_algorithm_runs(make_config: MakeConfig, algorithm: dict[str, Any]) -> None:
    steps = train(make_config(**ONE_RANK, training={"totalSteps": 2}, algorithm=algorithm))
    assert len(steps) == 2
    assert all(value is not None for step in steps for value in step.values())


def test_a_conversation_with_the_calculator(make_config: MakeConfig) -> None:
    rollout = {"multiTurn": {"environment": "calculator", "maxTurns": 2}}
    (step,) = train(make_config(**ONE_RANK, training={"totalSteps": 1}, rollout=rollout))
    assert step["critic/score/mean"] >= 0
