"""Attempts on one Ray cluster, of which each is killed at a random moment and followed by the next one at once.

Nothing waits for the processes of the killed attempt, which the check of the next one would find (rlt_pod/clear.py).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from test_checkpoint_kill import MakeConfig, metrics

from rlt_api.spec.training_config import TRAIN_RESOURCE, TrainingConfig
from rlt_trainer.checkpoint.marker import find_latest_step

KILLS = 20
STEPS = 24
CHANGES: dict[str, Any] = {
    "workers": 1,
    "algorithm": {"klLossCoef": 0.1},
    "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],  # random weights sometimes earn it
    "training": {"totalSteps": STEPS},
    "checkpoint": {"saveFreq": 1, "asynchronous": True, "maxToKeep": 2},
}


@dataclass(frozen=True)
class RayHead:
    """A Ray cluster of one node."""

    address: str
    raylet: psutil.Process


@pytest.fixture
def head() -> Iterator[RayHead]:
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 4, "resources": {TRAIN_RESOURCE: 4}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    assert cluster.head_node
    (raylet,) = cluster.head_node.all_processes["raylet"]
    yield RayHead(cluster.address, psutil.Process(raylet.process.pid))
    cluster.shutdown()


def start_attempt(config: TrainingConfig, head: RayHead, attempt: int, folder: Path) -> subprocess.Popen[str]:
    file = folder / "training.json"
    file.write_text(config.model_dump_json(by_alias=True))
    options = ["--config", str(file), "--port", "0", "--attempt", str(attempt), "--holder", f"tiny-{attempt}"]
    command = [sys.executable, "-m", "rlt_trainer", "run", *options]
    environment = {**os.environ, "RAY_ADDRESS": head.address}
    log = (folder / f"attempt-{config.run_directory[-2:]}-{attempt}.log").open("w")
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, env=environment)


def kill(driver: subprocess.Popen[str], head: RayHead, *, is_rank: bool) -> None:
    """SIGKILL to the train worker, if there is one, or to the driver. Wait for the end of the driver."""
    ranks = [each for each in head.raylet.children() if find_title(each).startswith("ray::TrainWorker")]
    if is_rank and ranks:
        ranks[-1].kill()
    else:
        driver.kill()
    driver.wait(timeout=120)


def find_title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.slow
@pytest.mark.long
def test_twenty_killed_attempts_lose_no_committed_step_and_leave_the_result_unchanged(
    head: RayHead, make_config: MakeConfig, tmp_path: Path
) -> None:
    whole = make_config(**CHANGES, runDirectory=str(tmp_path / "run-00"))
    began = time.monotonic()
    assert start_attempt(whole, head, 1, tmp_path).wait(timeout=300) == 0
    within = time.monotonic() - began
    expected = (tmp_path / "run-00/export/model.safetensors").read_bytes()

    killed = 0
    runs = 0
    generator = random.Random(os.urandom(8))
    while killed < KILLS:
        runs += 1
        run = tmp_path / f"run-{runs:02}"
        config = make_config(**CHANGES, runDirectory=str(run))
        attempt = 0
        saved = 0
        while True:
            attempt += 1
            driver = start_attempt(config, head, attempt, tmp_path)
            moment = generator.uniform(0, within)
            try:
                code = driver.wait(timeout=moment if killed < KILLS else 300)
                log = (tmp_path / f"attempt-{run.name[-2:]}-{attempt}.log").read_text()
                assert code == 0, log
                break
            except subprocess.TimeoutExpired:
                kill(driver, head, is_rank=generator.random() < 0.5)
                killed += 1
            committed = find_latest_step(run / "checkpoints") or 0
            assert committed >= saved
            saved = committed
        assert metrics(run) == metrics(tmp_path / "run-00")
        assert (run / "export/model.safetensors").read_bytes() == expected
