"""Examples that run on CPUs, with the trainer's own loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import train

from rlt import Job
from rlt_api.training_config import CONFIG_FILE, TrainingConfig
from rlt_trainer.rewards import sources

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_user_defined_reward_teaches_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward increases from 0.002 to 0.11."""
    (tmp_path / "digits").symlink_to(EXAMPLES / "rewards")
    monkeypatch.setattr(sources, "FUNCTIONS_DIRECTORY", str(tmp_path))
    rendered = Job.from_file(EXAMPLES / "23-reward-function.yaml").render()
    (files,) = (each["data"] for each in rendered if each["kind"] == "ConfigMap")
    config = {**json.loads(files[CONFIG_FILE]), "runDirectory": str(tmp_path / "run"), "cpusPerWorker": 1}
    rewards = [step["critic/score/mean"] for step in train(TrainingConfig.model_validate(config))]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.05
