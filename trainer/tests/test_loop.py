"""Whole steps of the real training loop, with one train worker in this process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import pytest
from in_process import train

from rlt_api.blocks.model import Model, SeededModel
from rlt_api.spec.suite_scores import SuiteScores
from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_trainer.algorithms import user_functions
from rlt_trainer.batches.scores import Scores
from rlt_trainer.checkpoint.marker import find_latest_step, read_marks
from rlt_trainer.driver import loop
from rlt_trainer.driver.rollouts import RolloutSampler
from rlt_trainer.errors import Terminated, TrainingError
from rlt_trainer.evaluation.sample_file import read_samples
from rlt_trainer.policy.config import load_config
from rlt_trainer.policy.model_files import prepare_model_files
from rlt_trainer.rewards import sources
from rlt_trainer.rewards.scorer import Scorer
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.rollout.weight_channel import receive_weights
from rlt_trainer.rollout.weight_sync import StaleWeightsError
from rlt_trainer.telemetry.flops import find_shape
from rlt_trainer.telemetry.speed import Work, compute_speed_metrics
from rlt_trainer.workers.train_worker import TrainWorker

pytestmark = pytest.mark.slow

LIMITS = {"value": "", "low": "_low", "high": "_high"}
"""Part of a gain's interval -> the end of its metric's name."""
MakeConfig = Callable[..., TrainingConfig]
ONE_RANK = {"workers": 1}
SEPARATE = {"mode": "separate", "workerGroup": "engines"}
REWARD: dict[str, Any] = {"rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}]}
"""The rewards of responses differ with random weights, so the weights change."""


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
    """Write the module `mine` where the operator mounts the ConfigMap `functions`."""

    def write(source: str) -> None:
        (tmp_path / "functions").mkdir()
        (tmp_path / "functions/mine.py").write_text(source)

    for module in (sources, user_functions):
        monkeypatch.setattr(module, "FUNCTIONS_DIRECTORY", str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the loader appends the folder
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
    rollouts = [json.loads(line) for line in lines]
    assert sum(each["reward"] is None for each in rollouts) == failed
    assert all((each["advantage"] is None) == (each["reward"] is None) for each in rollouts)
    assert any(each["advantage"] for each in rollouts)
    assert sum(each["tokens"] for each in rollouts) / 32 == pytest.approx(step["response_length/mean"])


def test_dynamic_sampling_keeps_only_groups_that_differ(make_config: MakeConfig) -> None:
    algorithm = {"filterGroups": {"metric": "score", "maxNumGenBatches": 30}}
    rewards = [{"name": "regex", "options": {"pattern": "[a-zA-Z]"}}]
    (step,) = train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm=algorithm, rewards=rewards))
    assert step["train/num_gen_batches"] > 1
    assert step["data/prompts_consumed"] == 8 * step["train/num_gen_batches"]
    assert 0 < step["critic/score/mean"] < 1


def test_dynamic_sampling_of_stale_groups_uses_every_group_that_differs(make_config: MakeConfig) -> None:
    algorithm = {"filterGroups": {"metric": "score", "maxNumGenBatches": 30}}
    rewards = [{"name": "regex", "options": {"pattern": "[a-zA-Z]"}}]
    config = make_config(**ONE_RANK, algorithm=algorithm, rewards=rewards, rollout={"staleness": {"maxSteps": 2}})
    steps = train(config)
    consumed = [step["data/prompts_consumed"] for step in steps]
    assert consumed == sorted(consumed)
    assert consumed[-1] <= 8 * sum(step["train/num_gen_batches"] for step in steps)
    for step in range(1, 4):
        lines = (Path(config.run_directory) / f"rollouts/step-{step}.jsonl").read_text().splitlines()
        rewards_of: dict[str, set[float]] = {}
        for line in map(json.loads, lines):
            rewards_of.setdefault(line["prompt"], set()).add(line["reward"])
        assert len(lines) == 32
        assert all(len(rewards) > 1 for rewards in rewards_of.values())


def test_dynamic_sampling_without_a_result_fails(make_config: MakeConfig) -> None:
    algorithm = {"filterGroups": {"metric": "score", "maxNumGenBatches": 2}}
    rewards = [{"name": "length", "options": {"max": 1000}}]
    with pytest.raises(TrainingError, match=r"Only 0 of 8 prompts .* after 2 generations"):
        train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm=algorithm, rewards=rewards))


def test_unlimited_dynamic_sampling_ends_if_no_group_differs(make_config: MakeConfig) -> None:
    algorithm = {"filterGroups": {"metric": "score"}}
    rewards = [{"name": "length", "options": {"max": 1000}}]
    with pytest.raises(TrainingError, match=r"Only 0 of 8 prompts .* after 20 generations, and the last 20 added none"):
        train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm=algorithm, rewards=rewards))


def test_unlimited_dynamic_sampling_stops_after_sigterm(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(
        **ONE_RANK,
        algorithm={"filterGroups": {"metric": "score"}},
        rewards=[{"name": "length", "options": {"max": 1000}}],  # all responses have the same score
        checkpoint={"saveFreq": 1},
    )

    class TerminatingScorer(Scorer):
        def combine(self, *arguments: Any, **options: Any) -> Scores:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().combine(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_process, "Scorer", TerminatingScorer)
        with pytest.raises(Terminated, match=r"after step 0\. It can resume from .*step-0"):
            train(config)
    assert "after 1 generations" not in capsys.readouterr().out


def test_a_run_that_diverges_names_the_last_finite_checkpoint(
    make_config: MakeConfig, own_module: Callable[[str], None]
) -> None:
    own_module(
        "from dataclasses import replace\n"
        "from rlt_trainer.algorithms.losses import POLICY_LOSSES\n"
        "calls = 0\n"
        "def loss(inputs):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    right = POLICY_LOSSES['vanilla'](inputs)\n"
        "    return right if calls <= 2 else replace(right, loss=right.loss * float('nan'))\n"
    )
    algorithm = {"policyLossFunction": {"name": "mine:loss", "configMap": "functions"}}
    with pytest.raises(TrainingError, match=r"diverged.* The last finite checkpoint is .*/step-2\.$"):
        train(make_config(**ONE_RANK, algorithm=algorithm, checkpoint={"saveFreq": 1}))


def test_stale_engine_weights_stop_the_run(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransformersEngine, "_load_weights", lambda engine: list(receive_weights(engine._channel)))
    config = make_config(**ONE_RANK, **REWARD)
    with pytest.raises(StaleWeightsError, match="Stale weights in the rollout engine"):
        train(config)  # the sync before the first step sends the engine's own weights, the next one does not
    assert read_history(Path(config.run_directory) / METRICS_FILE, after=0) == b""


def test_a_suite_is_scored_when_due(make_config: MakeConfig) -> None:
    config = make_config(
        **ONE_RANK,
        **REWARD,
        data={"preset": "digits"},
        evaluation=[{"name": "test", "beforeTrain": True, "every": 2}],
        checkpoint={"saveFreq": 1},
    )
    scores = {step["step"]: step["val/test/reward/mean"] for step in train(config) if "val/test/reward/mean" in step}
    assert list(scores) == [0, 2, 3]
    saved = read_marks(Path(config.run_directory) / "checkpoints").values()
    assert {mark.step: mark.score for mark in saved} == {1: None, 2: scores[2], 3: scores[3]}


@pytest.mark.parametrize(
    ("rollout", "order"),
    [
        ({}, "train validate train validate train validate"),
        ({"staleness": {"maxSteps": 1}}, "train train train validate validate validate"),
        (SEPARATE, "train train validate train validate validate"),
        ({**SEPARATE, "staleness": {"maxSteps": 1}}, "train train train validate validate validate"),
    ],
    ids=["on-policy", "one-step-off", "separate", "separate-one-step-off"],
)
def test_evaluations_start_before_or_after_the_responses_of_the_next_step(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, rollout: dict[str, Any], order: str
) -> None:
    started: list[str] = []

    def record(method: str, event: str) -> None:
        start = getattr(RolloutSampler, method)

        def started_with(sampler: RolloutSampler, groups: Any) -> Any:
            if groups:
                started.append(event)
            return start(sampler, groups)

        monkeypatch.setattr(RolloutSampler, method, started_with)

    record("start", "train")
    record("start_suites", "validate")
    evaluation = [{"name": "test", "every": 1}]
    train(make_config(**ONE_RANK, **REWARD, data={"preset": "digits"}, evaluation=evaluation, rollout=rollout))
    assert " ".join(started) == order


def test_a_suite_of_several_responses_has_their_metrics(make_config: MakeConfig, tmp_path: Path) -> None:
    suite = {"name": "sampled", "every": 1, "responsesPerPrompt": 4, "temperature": 1.0}
    config = make_config(
        **ONE_RANK, **REWARD, data={"preset": "digits"}, training={"totalSteps": 1}, evaluation=[suite]
    )
    (step,) = train(config)
    mean, best = (step[f"val-core/sampled/rlt/digits/reward/{name}"] for name in ("mean@4", "best@4/mean"))
    assert 0 < mean < best <= 1
    assert "val-core/sampled/rlt/digits/reward/maj@4/mean" in step
    samples = read_samples(tmp_path / "run/evaluation/sampled/step-1.parquet")
    assert samples.scores.mean() == pytest.approx(mean)


@pytest.mark.parametrize("rollout", [{}, SEPARATE], ids=["colocated", "separate"])
def test_a_run_with_two_suites_equals_one_without(
    make_config: MakeConfig, tmp_path: Path, rollout: dict[str, Any]
) -> None:
    sampled = {"name": "sampled", "every": 1, "beforeTrain": True, "responsesPerPrompt": 2, "temperature": 1.0}
    greedy = {"name": "greedy", "every": 2}  # the same data source

    def run(name: str, **blocks: Any) -> tuple[list[dict[str, Any]], list[bytes]]:
        folder = tmp_path / name
        parts = {"data": {"preset": "digits"}, "runDirectory": str(folder), "rollout": rollout, **blocks}
        train(make_config(**ONE_RANK, **REWARD, **parts))
        steps = [
            {key: value for key, value in step.items() if not key.startswith(("val", "timing", "overlap", "perf/"))}
            for step in map(json.loads, read_history(folder / METRICS_FILE, after=0).splitlines())
        ]
        files = [*sorted((folder / "rollouts").iterdir()), *sorted((folder / "export").glob("*.safetensors"))]
        return steps, [file.read_bytes() for file in files]

    with_suites = run("with", evaluation=[sampled, greedy])
    assert with_suites == run("without")
    assert len(with_suites[1]) == 4  # the responses of three steps, and the weights
    folder = tmp_path / "with/evaluation"
    steps = {suite: sorted(file.stem for file in (folder / suite).glob("*.parquet")) for suite in ("sampled", "greedy")}
    assert steps == {"sampled": ["step-0", "step-1", "step-2", "step-3"], "greedy": ["step-2", "step-3"]}
    assert json.loads((folder / "sampled/changes.json").read_text())["step"] == 3
    by_prompt = SuiteScores.model_validate_json((folder / "sampled/scores.json").read_text())
    assert by_prompt == read_samples(folder / "sampled/step-3.parquet").summarize(3)
    assert not (folder / "greedy/changes.json").exists()  # it has no evaluation before the first step
    last = json.loads((tmp_path / "with" / METRICS_FILE).read_text().splitlines()[-1])
    scores = {name for name in last if name.startswith("val-core/") and "/mean@" in name}
    assert scores == {"val-core/sampled/rlt/digits/reward/mean@2", "val-core/greedy/rlt/digits/reward/mean@1"}


def test_suites_have_their_own_data_and_the_first_one_selects_the_best_checkpoint(make_config: MakeConfig) -> None:
    sums = {"name": "sums", "every": 3, "data": {"preset": "arithmetic"}}
    config = make_config(
        **ONE_RANK,
        **REWARD,
        data={"preset": "digits"},
        evaluation=[sums, {"name": "digits", "every": 1}],
        checkpoint={"saveFreq": 1},
    )
    steps = train(config)
    assert ["val/sums/reward/mean" in step for step in steps] == [False, False, True]
    assert "val-core/sums/rlt/arithmetic/reward/mean@1" in steps[-1]
    saved = read_marks(Path(config.run_directory) / "checkpoints").values()
    assert {mark.step: mark.score for mark in saved} == {1: None, 2: None, 3: steps[-1]["val/sums/reward/mean"]}


def test_an_evaluation_is_compared_with_the_one_before_the_first_step(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(steps: int) -> dict[str, Any]:
        parts = {"data": {"preset": "digits"}, "training": {"totalSteps": steps}, "checkpoint": {"saveFreq": 1}}
        parts["evaluation"] = [{"name": "test", "every": 1, "beforeTrain": True}]
        return {step["step"]: step for step in train(make_config(**ONE_RANK, **REWARD, **parts))}[steps]

    base = run(1)
    last = run(2)  # resumes from step 1
    start = base["val/test/reward/mean"] - base["val/test/reward/gain"]
    assert last["val/test/reward/mean"] - last["val/test/reward/gain"] == pytest.approx(start)
    assert last["val-aux/test/rlt/digits/reward/mean@1/gain_low"] <= last["val/test/reward/gain"]
    (tmp_path / "run/evaluation/test/step-0.parquet").write_bytes(b"damaged")
    assert "val/test/reward/gain" not in run(3)
    assert "is not compared" in caplog.text


def test_gates_are_judged_after_the_last_step_also_of_a_resumed_run(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run/evaluation/gates.json"
    suites = [
        {"name": "digits", "every": 3, "beforeTrain": True, "promoteIf": {"gainAbove": -1, "minimum": 0}},
        {"name": "sums", "every": 3, "data": {"preset": "arithmetic"}, "promoteIf": {"minimum": 2}},
        {"name": "plain", "every": 3},
    ]
    config = make_config(**ONE_RANK, **REWARD, data={"preset": "digits"}, evaluation=suites, checkpoint={"saveFreq": 1})
    last = train(config)[-1]
    assert "[gate] digits: passed: mean" in capsys.readouterr().out
    judged = json.loads(file.read_text())
    assert judged["step"] == 3
    assert {suite: gate["passed"] for suite, gate in judged["gates"].items()} == {"digits": True, "sums": False}
    assert judged["gates"]["digits"]["value"] == pytest.approx(last["val/digits/reward/mean"])
    gain = {name: last[f"val/digits/reward/gain{suffix}"] for name, suffix in LIMITS.items()}
    assert judged["gates"]["digits"]["gain"] == pytest.approx(gain)
    file.unlink()
    assert train(config)[-1]["step"] == 3  # resumes after the last step, and evaluates nothing
    assert json.loads(file.read_text()) == judged


def test_the_policy_is_not_updated_while_the_critic_warms_up(make_config: MakeConfig) -> None:
    steps = train(make_config(**ONE_RANK, **REWARD, algorithm={"advEstimator": "gae", "critic": {"warmupSteps": 2}}))
    assert ["actor/pg_loss" in step for step in steps] == [False, False, True]
    assert all("critic/vf_loss" in step for step in steps)


def test_a_resumed_run_equals_an_uninterrupted_run(make_config: MakeConfig, tmp_path: Path) -> None:
    algorithm = {"advEstimator": "gae", "critic": {}, "klLossCoef": 0, "klInReward": {"type": "adaptive", "horizon": 9}}

    def run(name: str, steps: int) -> list[dict[str, Any]]:
        parts = {"training": {"totalSteps": steps}, "checkpoint": {"saveFreq": 1}, "algorithm": algorithm}
        return train(make_config(**ONE_RANK, **REWARD, **parts, runDirectory=str(tmp_path / name)))

    run("parts", 2)
    (third,) = run("parts", 3)[2:]
    (whole,) = run("whole", 3)[2:]
    for name in ("critic/vf_loss", "actor/pg_loss", "actor/grad_norm", "actor/reward_kl_penalty_coeff"):
        assert third[name] == whole[name] != 0, name


@pytest.mark.parametrize("where", ["load_models", "open_shared_channel", "supervised_step"])
def test_sigterm_before_the_first_step_stops_the_run_at_once(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    original = getattr(TrainWorker, where)

    def call(worker: TrainWorker, *arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return original(worker, *arguments)

    monkeypatch.setattr(TrainWorker, where, call)
    config = make_config(**ONE_RANK, training={"warmup": {"steps": 2, "batchSize": 8}}, checkpoint={"saveFreq": 1})
    with pytest.raises(Terminated, match="before its first step"):
        train(config)
    assert find_latest_step(Path(config.run_directory) / "checkpoints") is None


def test_a_run_resumes_only_with_its_own_data(make_config: MakeConfig) -> None:
    def config(answer: str, steps: int) -> TrainingConfig:
        data = {"preset": None, "inline": [{"prompt": "1+1=", "answer": answer}]}
        return make_config(**ONE_RANK, data=data, training={"totalSteps": steps}, checkpoint={"saveFreq": 1})

    train(config("2", 1))
    with pytest.raises(ValueError, match=r"step-1 was saved by a run with other data: the same number of prompts"):
        train(config("two", 2))
    assert [step["training/global_step"] for step in train(config("2", 2))] == [1, 2]


def test_user_defined_functions(make_config: MakeConfig, tmp_path: Path, own_module: Callable[[str], None]) -> None:
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


def test_colocated_responses_of_a_later_step_start_with_older_weights(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_step = loop.Trainer.step

    def step_after_generation(trainer: loop.Trainer, step: int, *arguments: Any) -> Any:
        for group in trainer.generator._schedule.groups_ahead(step)[1]:
            group.pending.scored.result()
        return train_step(trainer, step, *arguments)

    monkeypatch.setattr(loop.Trainer, "step", step_after_generation)
    parts = {"rollout": {"staleness": {"maxSteps": 1}}, "training": {"learningRate": 1e-2}}
    steps = train(make_config(**ONE_RANK, **REWARD, **parts))
    assert [step["data/prompts_consumed"] for step in steps] == [8, 16, 24]
    assert [step["training/staleness/max"] for step in steps] == [0, 1, 1]
    assert steps[0]["training/rollout_probs_diff_max"] < 1e-4
    assert min(step["training/rollout_probs_diff_max"] for step in steps[1:]) > 1e-4


@pytest.mark.parametrize(
    ("frequency", "verified"), [(0, [False] * 3), (2, [False, True, False])]
)  # the sync before the first step is the first
def test_every_nth_weight_sync_is_verified(make_config: MakeConfig, frequency: int, verified: list[bool]) -> None:
    steps = train(make_config(**ONE_RANK, **REWARD, rollout={"verifyWeightsFreq": frequency}))
    assert ["training/weight_sync_difference" in step for step in steps] == verified


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


def test_a_critics_flops_are_counted_from_its_model(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Model(from_seed=SeededModel(hidden_size=64, num_hidden_layers=1))
    critic = {"modelPath": prepare_model_files(small, tmp_path / "critic")}
    works: list[Work] = []

    def record_work(spans: Any, reports: Any, work: Work, **options: Any) -> dict[str, float]:
        works.append(work)
        return compute_speed_metrics(spans, reports, work, **options)

    monkeypatch.setattr(loop, "compute_speed_metrics", record_work)
    train(make_config(**ONE_RANK, training={"totalSteps": 1}, algorithm={"advEstimator": "gae", "critic": critic}))
    (work,) = works
    assert work.critic == find_shape(load_config(small))
    assert work.critic != work.actor


def test_a_conversation_with_the_calculator(make_config: MakeConfig) -> None:
    rollout = {"multiTurn": {"environment": "calculator", "maxTurns": 2}}
    (step,) = train(make_config(**ONE_RANK, training={"totalSteps": 1}, rollout=rollout))
    assert step["critic/score/mean"] >= 0
