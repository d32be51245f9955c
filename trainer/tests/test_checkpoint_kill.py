"""A run that is killed and restarted has identical results, bit for bit. A run saves a checkpoint on SIGTERM."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_trainer.__main__ import TERMINATED, main
from rlt_trainer.checkpoint.marker import find_latest_step

MakeConfig = Callable[..., TrainingConfig]
STEPS = 6


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[TrainingConfig], subprocess.Popen[str]]]:
    """Start `rlt-trainer run --local`, and kill all runs at the end."""
    started: list[subprocess.Popen[str]] = []

    def run(config: TrainingConfig) -> subprocess.Popen[str]:
        file = tmp_path / "training.json"
        file.write_text(config.model_dump_json(by_alias=True))
        command = [sys.executable, "-m", "rlt_trainer", "run", "--config", str(file), "--local"]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_until_step(process: subprocess.Popen[str], step: int) -> list[str]:
    """Read the output up to the line of the step."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(f"step:{step} "):
            return lines
    raise AssertionError("".join(lines))


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the run's metrics without timings."""
    measured = ("timing_s/", "timing_per_token_ms/", "perf/", "overlap_s/")
    lines = read_history(run / METRICS_FILE, after=0).splitlines()
    return [{key: value for key, value in json.loads(line).items() if not key.startswith(measured)} for line in lines]


def kill_at_random(
    start: Callable[[TrainingConfig], subprocess.Popen[str]], config: TrainingConfig, *, within: float
) -> float:
    """Start a run, and kill it after a random time of up to `within` seconds. Returns that time."""
    while True:
        moment = random.uniform(0, within)
        process = start(config)
        try:
            process.wait(timeout=moment)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return moment
        assert process.returncode == 0
        within = moment  # the run ended earlier: try again with less time
        shutil.rmtree(config.run_directory)


@pytest.mark.slow
def test_a_run_killed_at_any_time_has_identical_results(
    start: Callable[[TrainingConfig], subprocess.Popen[str]], make_config: MakeConfig, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "workers": 1,
        "algorithm": {
            "advEstimator": "gae",
            "critic": {},
            "klLossCoef": 0.1,
            "klInReward": {"type": "adaptive", "klCoef": 0.01, "horizon": 100},
        },
        "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],  # random weights sometimes earn it
        "training": {"totalSteps": STEPS, "warmup": {"steps": 2, "batchSize": 8}},
        "checkpoint": {"saveFreq": 1, "asynchronous": True, "maxToKeep": 2},
    }
    whole, parts = (make_config(**changes, runDirectory=str(tmp_path / name)) for name in ("whole", "parts"))
    began = time.monotonic()
    assert start(whole).wait(timeout=300) == 0
    moment = kill_at_random(start, parts, within=time.monotonic() - began)

    second = start(parts)
    output = second.communicate(timeout=300)[0]
    assert second.returncode == 0, moment
    # A save of the train worker may end after the driver was killed.
    assert ("[warmup]" in output) != ("resuming from " in output), moment
    steps = metrics(tmp_path / "parts")
    assert steps == metrics(tmp_path / "whole"), moment
    assert all(step["actor/pg_loss"] != 0 and step["critic/vf_loss"] > 0 for step in steps)
    exports = [tmp_path / "whole" / "export", tmp_path / "parts" / "export", tmp_path / "again"]
    last = tmp_path / "parts" / "checkpoints" / f"step-{STEPS}"
    assert main(["export", "--checkpoint", str(last), "--output", str(exports[-1])]) == 0
    assert len({(directory / "model.safetensors").read_bytes() for directory in exports}) == 1, moment


@pytest.mark.slow
def test_sigterm_during_preparation_ends_the_run(
    start: Callable[[TrainingConfig], subprocess.Popen[str]], make_config: MakeConfig
) -> None:
    process = start(make_config(workers=1, training={"totalSteps": 1000}, checkpoint={"saveFreq": 1}))
    assert process.stdout is not None
    assert any(line.startswith("[preparing] loading the policy") for line in process.stdout)
    process.terminate()
    rest = process.communicate(timeout=120)[0]
    assert process.returncode == TERMINATED, rest
    assert "[training]" not in rest


@pytest.mark.slow
def test_sigterm_saves_a_checkpoint(
    start: Callable[[TrainingConfig], subprocess.Popen[str]], make_config: MakeConfig, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = make_config(workers=1, training={"totalSteps": 1000}, checkpoint={"saveFreq": 1000}, runDirectory=str(run))
    process = start(config)
    read_until_step(process, 2)
    process.terminate()
    assert process.wait(timeout=120) == TERMINATED
    assert find_latest_step(run / "checkpoints") == len(metrics(run))
