"""`rlt-trainer trial`: the last stage of the preflight checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.trial import build_trial_config, run_trial

MakeConfig = Callable[..., TrainingConfig]


def test_the_trial_is_one_step_of_the_same_configuration(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(
        training={"totalSteps": 500},
        evaluation=[{"name": "test", "every": 5, "beforeTrain": True}],
        checkpoint={"saveFreq": 50, "maxToKeep": 2, "keepBest": True},
    )
    trial = build_trial_config(config, tmp_path)
    assert (trial.training.total_steps, trial.evaluation, trial.checkpoint.save_freq) == (1, [], 1)
    assert trial.run_directory == str(tmp_path)
    same = {"total_steps", "total_epochs", "warmup"}
    assert trial.training.model_dump(exclude=same) == config.training.model_dump(exclude=same)
    assert (trial.model, trial.rollout, trial.algorithm) == (config.model, config.rollout, config.algorithm)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_step_is_trained_and_its_checkpoint_is_read_back(make_config: MakeConfig) -> None:
    config = make_config(workers=1, training={"totalSteps": 500})
    report = run_trial(config)
    assert report["seconds"] > 0
    assert report["resumeSeconds"] > 0
    assert report["checkpointBytes"] > 3 * 4 * 10_000, "weights and two moments"
    assert isinstance(report["text"], str)
    assert list(Path(config.run_directory).iterdir()) == [], "the folder of the trial is removed"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_trial_that_cannot_train_raises_the_error_of_the_training(make_config: MakeConfig) -> None:
    config = make_config(workers=1, data={"preset": None, "files": ["/nowhere/train.parquet"]})
    with pytest.raises((ValueError, FileNotFoundError), match="nowhere"):
        run_trial(config)
    assert not list(Path(config.run_directory).glob("*"))
