"""Recorded experts reach the update of a whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import train
from replayed_mixtures import MIXTURES
from trained_families import write_model

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.batches.recording import Recording
from rlt_trainer.batches.sequences import Sequences
from rlt_trainer.telemetry.run_directory import RunDirectory

pytestmark = pytest.mark.slow

DIFFERENCE = "training/rollout_probs_diff_mean"
MakeConfig = Callable[..., TrainingConfig]


def run(make_config: MakeConfig, folder: Path, mode: str, ppo_epochs: int) -> Sequences:
    """Train two steps. Return the sequences of the second one."""
    write_model(MIXTURES["deepseek_v3"], folder)
    config = make_config(
        workers=1,
        model={"fromSeed": None, "path": str(folder)},
        rewards=[{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
        algorithm={"routerReplay": mode},
        training={"totalSteps": 2, "ppoEpochs": ppo_epochs},
        observability={"recordSteps": [2]},
    )
    assert all(0 < step[DIFFERENCE] < 1e-5 for step in train(config))
    return Recording.load(RunDirectory(config.run_directory).recordings, 2).experience.sequences


def count_routed(sequences: Sequences) -> list[int]:
    """Return the number of tokens with experts in each row, in the layers that have some."""
    assert sequences.routes is not None
    assert not sequences.routes[:, :, 0].any(), "the first layer is dense"
    return (sequences.routes[:, :, 1:] > 0).flatten(2).all(-1).sum(-1).tolist()


def test_r3_replays_the_engines_experts(make_config: MakeConfig, tmp_path: Path) -> None:
    sequences = run(make_config, tmp_path / "model", "R3", 1)
    assert count_routed(sequences) == [count - 1 for count in sequences.token_counts()]


def test_r2_replays_the_experts_of_the_old_log_probabilities(make_config: MakeConfig, tmp_path: Path) -> None:
    sequences = run(make_config, tmp_path / "model", "R2", 2)
    assert count_routed(sequences) == sequences.token_counts()


def test_r2_records_nothing_for_the_first_mini_batch(make_config: MakeConfig, tmp_path: Path) -> None:
    sequences = run(make_config, tmp_path / "model", "R2", 1)
    counts = count_routed(sequences)
    half = len(counts) // 2
    assert counts == [0] * half + sequences.token_counts()[half:]
