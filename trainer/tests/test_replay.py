"""Updates of a recorded step can be repeated on another number of ranks and with another loss."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks

from rlt_api.blocks.algorithm import Algorithm, Critic
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.blocks.operations import Observability
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import MultiTurn, Rollout
from rlt_api.blocks.training import Warmup
from rlt_api.spec.training_config import ResolvedTraining, TrainingConfig
from rlt_trainer.__main__ import main
from rlt_trainer.batches.recording import Recording
from rlt_trainer.batches.sequences import Experience, Sequences
from rlt_trainer.driver.replay import validate
from rlt_trainer.telemetry.run_directory import RECORDINGS

MakeConfig = Callable[..., TrainingConfig]
STEP = 1
ROWS = 32


def experience() -> Experience:
    """Eight prompts with four responses each."""
    torch.manual_seed(0)
    responses = [torch.randint(0, 256, (1 + row % 5,)).tolist() for row in range(ROWS)]
    sequences = Sequences.pad([[40 + row // 4] * (1 + row % 3) for row in range(ROWS)], responses, pad_token_id=0)
    shape = sequences.responses.shape
    old, ref = (torch.randn(shape) * 0.1 - 5.5 for _ in range(2))
    return Experience(sequences, old, torch.randn(ROWS, 1).expand(shape), ref_log_probs=ref)


def test_a_recording_is_restored_bit_for_bit(make_config: MakeConfig, tmp_path: Path) -> None:
    rollouts = {"rewards": torch.rand(ROWS), "rewards.exact": torch.rand(ROWS)}
    written = Recording(STEP, experience(), rollouts, {"actor/pg_loss": 0.1}, make_config())
    written.save(tmp_path)
    read = Recording.load(tmp_path, STEP)
    assert (read.step, read.metrics, read.config) == (STEP, written.metrics, written.config)
    assert all(torch.equal(read.rollouts[name], value) for name, value in rollouts.items())
    assert read.experience.values is None
    for field in fields(Sequences):
        actual, expected = (getattr(each.experience.sequences, field.name) for each in (read, written))
        assert actual is expected is None or torch.equal(actual, expected)
    assert torch.equal(read.experience.advantages, written.experience.advantages)


def test_a_missing_step_is_reported_with_the_recorded_steps(make_config: MakeConfig, tmp_path: Path) -> None:
    Recording(7, experience(), {}, {}, make_config()).save(tmp_path)
    with pytest.raises(ValueError, match="step 1 is not recorded; recorded steps: 7"):
        Recording.load(tmp_path, 1)


@pytest.mark.parametrize(
    ("ranks", "changes", "message"),
    [
        (3, {}, "32 responses in mini-batches of 16, which are not divisible by 3 ranks"),
        (1, {"training": {"contextParallelSize": 2}}, "contextParallelSize: 2 does not divide the number of ranks, 1"),
        (1, {"algorithm": {"advEstimator": "gae", "critic": {}}}, "recorded without a critic's values"),
        (1, {"algorithm": {"distillation": {"modelPath": "/t"}}}, "recorded without a teacher"),
        (1, {"algorithm": {"routerReplay": "R3"}}, "recorded without the engine's experts"),
    ],
)
def test_recordings_that_cannot_be_replayed_are_rejected(
    make_config: MakeConfig, ranks: int, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        validate(Recording(STEP, experience(), {}, {}, make_config()), make_config(**changes), ranks)


@pytest.mark.parametrize(("recorded", "mode"), [("k1", "forward_kl_topk"), ("forward_kl_topk", "k1")])
def test_another_loss_mode_of_a_distillation_is_rejected(make_config: MakeConfig, recorded: str, mode: str) -> None:
    whole = experience()
    values = torch.zeros(whole.sequences.responses.shape)
    ids = whole.sequences.responses[..., None] if recorded == "forward_kl_topk" else None
    whole = replace(whole, teacher_log_probs=values if ids is None else values[..., None], teacher_ids=ids)

    def validate_mode(mode: str) -> None:
        config = make_config(algorithm={"distillation": {"modelPath": "/t", "lossMode": mode}})
        validate(Recording(STEP, whole, {}, {}, config), config, 1)

    validate_mode(recorded)
    with pytest.raises(ValueError, match=f"lossMode {recorded}: use it instead of {mode}"):
        validate_mode(mode)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> TrainingConfig:
    """Record a run of two steps with conversations. Return its config."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "again.py").write_text(
        "class Again:\n"
        "    def reset(self, prompt):\n"
        "        return None\n"
        "    def step(self, response):\n"
        "        return '?', None, False\n"
    )
    config = TrainingConfig(
        job="tiny",
        namespace="default",
        run_directory=str(folder / "run"),
        workers=1,
        devices_per_worker=0,
        cpus_per_worker=1,
        model=Model(from_seed=SeededModel(hidden_size=64, intermediate_size=128, num_hidden_layers=2)),
        data=Data(preset="arithmetic", max_prompt_length=16, max_response_length=10),
        rewards=[Reward(name="characters")],
        algorithm=Algorithm(adv_estimator="gae", critic=Critic(warmup_steps=1), kl_loss_coef=0.1),
        training=ResolvedTraining(
            total_steps=2,
            train_batch_size=8,
            ppo_mini_batch_size=4,
            ppo_epochs=2,
            learning_rate=1e-3,
            warmup=Warmup(steps=50, batch_size=16, learning_rate=3e-3),  # the policy learns to end its turns
        ),
        rollout=Rollout(
            engine="transformers", responses_per_prompt=4, multi_turn=MultiTurn(environment="again:Again", max_turns=2)
        ),
        checkpoint=Checkpoint(),
        observability=Observability(record_steps=[1, 2]),
    )
    run_ranks(train_with_functions, [(config, str(folder))])
    return config


def train_with_functions(config: TrainingConfig, folder: str) -> None:
    """Train with user-defined functions of the modules in `folder`."""
    from in_process import train

    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])  # of the environment
    train(config)


def parse(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def replay_on_one_rank(config: TrainingConfig, *options: str) -> list[dict[str, Any]]:
    output = io.StringIO()
    with redirect_stdout(output):
        assert main(["replay", config.run_directory, "-o", "json", *options]) == 0
    return parse(output.getvalue())


def replay_on_two_ranks(config: TrainingConfig, *options: str) -> list[dict[str, Any]]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program = ["-m", "rlt_trainer", "replay", config.run_directory, "-o", "json", *options]
    command = [sys.executable, *torchrun, *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


@pytest.mark.slow
def test_all_inputs_of_the_updates_are_recorded(recorded: TrainingConfig) -> None:
    first, second = (Recording.load(Path(recorded.run_directory) / RECORDINGS, step) for step in (1, 2))
    assert first.config == recorded
    assert first.experience.values is not None
    assert "timing_s/record" in first.metrics
    sequences = second.experience.sequences
    assert (sequences.response_attention & ~sequences.response_mask).any(), "observations of the environment"


@pytest.mark.slow
def test_a_replay_equals_the_recorded_steps_bit_for_bit(recorded: TrainingConfig) -> None:
    first, second = replay_on_one_rank(recorded, "--step", "1", "--to", "2")
    assert "actor/pg_loss" not in first["replayed"], "the critic warms up"
    assert {"critic/vf_loss", "actor/pg_loss", "actor/kl_loss", "actor/grad_norm"} <= second["recorded"].keys()
    for step in (first, second):
        assert step["replayed"] == step["recorded"]


@pytest.mark.slow
def test_two_ranks_replay_a_recording_of_one_rank(recorded: TrainingConfig) -> None:
    (step,) = replay_on_two_ranks(recorded, "--step", "2")
    assert step["replayed"] == pytest.approx(step["recorded"], rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_another_loss_on_the_same_rollouts(recorded: TrainingConfig, tmp_path: Path) -> None:
    other = recorded.model_copy(update={"algorithm": recorded.algorithm.model_copy(update={"kl_loss_coef": 0.0})})
    (tmp_path / "other.json").write_text(other.model_dump_json(by_alias=True))
    (step,) = replay_on_one_rank(recorded, "--step", "2", "--config", str(tmp_path / "other.json"))
    assert "actor/kl_loss" not in step["replayed"]
    assert step["replayed"]["actor/grad_norm"] != step["recorded"]["actor/grad_norm"]
