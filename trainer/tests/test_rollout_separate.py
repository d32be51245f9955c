"""Rollout workers in real runs with Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.run import run

MakeConfig = Callable[..., TrainingConfig]


def metrics(config: TrainingConfig) -> list[dict[str, Any]]:
    """Read the metrics of a run."""
    return [json.loads(line) for line in (Path(config.run_directory) / "metrics.jsonl").read_text().splitlines()]


REWARD: dict[str, Any] = {"rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}], "workers": 1}
"""The rewards of responses differ with random weights, so the weights change."""
SEPARATE = {"mode": "separate", "workerGroup": "rollout"}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_on_policy_metrics_are_the_same_as_with_colocated_engines(make_config: MakeConfig, tmp_path: Path) -> None:
    colocated = make_config(**REWARD, training={"totalSteps": 2}, runDirectory=str(tmp_path / "colocated"))
    changes: dict[str, Any] = {**REWARD, "rolloutWorkers": 2, "rollout": SEPARATE, "training": {"totalSteps": 2}}
    separate = make_config(**changes, runDirectory=str(tmp_path / "separate"))
    for config in (colocated, separate):
        run(config, local=False)
    for ours, theirs in zip(metrics(separate), metrics(colocated), strict=True):
        for name in ("critic/rewards/mean", "response_length/mean", "actor/grad_norm", "actor/entropy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name
        assert ours["actor/grad_norm"] > 0


@pytest.mark.slow
def test_one_step_off_trains_on_responses_of_older_weights(make_config: MakeConfig, tmp_path: Path) -> None:
    rollout = {**SEPARATE, "engine": "vllm", "staleness": {"maxSteps": 1}}
    config = make_config(**REWARD, rolloutWorkers=1, rolloutCpusPerWorker=2, rollout=rollout)
    file = tmp_path / "config"
    file.write_text(config.model_dump_json(by_alias=True))
    command = [sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = metrics(config)
    assert [step["training/global_step"] for step in steps] == [1, 2, 3]
    assert steps[0]["training/rollout_probs_diff_max"] < 1e-4
    assert max(step["training/rollout_probs_diff_max"] for step in steps[1:]) > 1e-4
    assert all(step["training/weight_sync_difference"] < 1e-4 for step in steps)
