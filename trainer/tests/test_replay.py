"""A recorded step can be learned from again, on another number of ranks and with another loss.

This file is also the program that makes a recording: `python test_replay.py CONFIG`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from rlt_api.blocks.algorithm import Algorithm
from rlt_api.blocks.checkpoint import Checkpoint
from rlt_api.blocks.data import Data
from rlt_api.blocks.model import Model, SeededModel
from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import Rollout
from rlt_api.training_config import ResolvedTraining, TrainingConfig
from rlt_trainer.recording import Recording
from rlt_trainer.replay import check, this_place
from rlt_trainer.sequences import Experience, Sequences

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


def test_a_recording_reads_back_bit_for_bit(make_config: MakeConfig, tmp_path: Path) -> None:
    rollouts = {"rewards": torch.rand(ROWS), "rewards.exact": torch.rand(ROWS)}
    written = Recording(STEP, experience(), rollouts, {"actor/pg_loss": 0.1}, make_config())
    written.save(tmp_path)
    read = Recording.load(tmp_path, STEP)
    assert (read.step, read.metrics, read.config) == (STEP, written.metrics, written.config)
    assert all(torch.equal(read.rollouts[name], value) for name, value in rollouts.items())
    assert read.experience.values is None
    for field in fields(Sequences):
        assert torch.equal(
            getattr(read.experience.sequences, field.name), getattr(written.experience.sequences, field.name)
        )
    assert torch.equal(read.experience.advantages, written.experience.advantages)


def test_a_step_that_is_not_recorded_is_named_with_those_that_are(make_config: MakeConfig, tmp_path: Path) -> None:
    Recording(7, experience(), {}, {}, make_config()).save(tmp_path)
    with pytest.raises(ValueError, match="step 1 is not recorded; recorded steps: 7"):
        Recording.load(tmp_path, 1)


@pytest.mark.parametrize(
    ("ranks", "algorithm", "message"),
    [
        (3, {}, "32 responses, in mini-batches of 16, which 3 ranks cannot"),
        (1, {"advEstimator": "gae", "critic": {}}, "recorded without a critic's values"),
    ],
)
def test_what_cannot_be_replayed_is_told(
    make_config: MakeConfig, ranks: int, algorithm: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check(Recording(STEP, experience(), {}, {}, make_config()), make_config(algorithm=algorithm), ranks)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> TrainingConfig:
    """The config of a run that has recorded its first step."""
    folder = tmp_path_factory.mktemp("recorded")
    config = TrainingConfig(
        job="tiny",
        namespace="default",
        run_directory=str(folder / "run"),
        workers=1,
        devices_per_worker=0,
        cpus_per_worker=1,
        model=Model(from_seed=SeededModel(hidden_size=64, intermediate_size=128, num_hidden_layers=2)),
        data=Data(preset="arithmetic", max_prompt_length=16, max_response_length=5),
        rewards=[Reward(name="exact")],
        algorithm=Algorithm(kl_loss_coef=0.1),
        training=ResolvedTraining(total_steps=1, ppo_mini_batch_size=4, ppo_epochs=2, learning_rate=1e-3),
        rollout=Rollout(n=4),
        checkpoint=Checkpoint(),
    )
    (folder / "config.json").write_text(config.model_dump_json(by_alias=True))
    subprocess.run([sys.executable, __file__, str(folder / "config.json")], check=True, timeout=300)
    return config


def replayed(config: TrainingConfig, *options: str, ranks: int = 1) -> dict[str, Any]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    program = ["-m", "rlt_trainer", "replay", config.run_directory, "--step", str(STEP), "-o", "json", *options]
    command = [sys.executable, *torchrun, *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
def test_a_replay_is_the_recorded_step_on_any_number_of_ranks(recorded: TrainingConfig) -> None:
    one, two = replayed(recorded), replayed(recorded, ranks=2)
    assert {"actor/pg_loss", "actor/kl_loss", "actor/grad_norm"} <= one["recorded"].keys()
    assert one["replayed"] == one["recorded"]
    assert two["replayed"] == pytest.approx(two["recorded"], rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_another_loss_is_tried_on_the_same_rollouts(recorded: TrainingConfig, tmp_path: Path) -> None:
    other = recorded.model_copy(update={"algorithm": recorded.algorithm.model_copy(update={"kl_loss_coef": 0.0})})
    (tmp_path / "other.json").write_text(other.model_dump_json(by_alias=True))
    said = replayed(recorded, "--config", str(tmp_path / "other.json"))
    assert "actor/kl_loss" not in said["replayed"]
    assert said["replayed"]["actor/grad_norm"] != said["recorded"]["actor/grad_norm"]


def record(config: TrainingConfig) -> None:
    """One rank learns from the experience; checkpoint and recording lie where the loop puts them."""
    from rlt_trainer.metrics import update_metrics
    from rlt_trainer.rank import Rank
    from rlt_trainer.rendezvous import Rendezvous
    from rlt_trainer.sequences import mini_batches
    from rlt_trainer.telemetry.run_directory import RunDirectory

    place, run = this_place(), RunDirectory(config.run_directory)
    rank = Rank(config, 0, 1, node_address=place.address)
    rank.connect(Rendezvous(place.address, place.port))
    rank.load_models()
    rank.save_recorded(run.recordings / "checkpoints", STEP - 1)
    rows = config.training.ppo_mini_batch_size * config.rollout.n
    batches = list(mini_batches(experience(), rows=rows, shares=1)) * config.training.ppo_epochs
    updates = [[result] for result in rank.update([batch[0] for batch in batches])]
    Recording(STEP, experience(), {}, update_metrics(updates), config).save(run.recordings)


if __name__ == "__main__":
    record(TrainingConfig.model_validate_json(Path(sys.argv[1]).read_bytes()))
