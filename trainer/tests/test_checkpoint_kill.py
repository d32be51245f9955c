"""A run that is killed and started again comes to the same end, bit for bit; one that is asked to end saves first."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.__main__ import TERMINATED, main
from rlt_trainer.checkpoint.marker import latest_complete
from rlt_trainer.telemetry.run_history import metrics_since

MakeConfig = Callable[..., TrainingConfig]
STEPS = 6


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[TrainingConfig], subprocess.Popen[str]]]:
    """Starts `rlt-trainer run --local`, and leaves none behind."""
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


def until_step(process: subprocess.Popen[str], step: int) -> list[str]:
    """What it says until it has taken the step."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(f"step:{step} "):
            return lines
    raise AssertionError("".join(lines))


def metrics(run: Path) -> list[dict[str, Any]]:
    """The run's metrics, without what a clock or the machine's load decides."""
    measured = ("timing_s/", "timing_per_token_ms/", "perf/", "overlap_s/")
    lines = metrics_since(run, 0).splitlines()
    return [{key: value for key, value in json.loads(line).items() if not key.startswith(measured)} for line in lines]


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moment_comes_to_the_same_end(
    start: Callable[[TrainingConfig], subprocess.Popen[str]], make_config: MakeConfig, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {
        "workers": 1,
        "algorithm": {"klLossCoef": 0.1},
        "training": {"totalSteps": STEPS, "warmup": {"steps": 2, "batchSize": 8}},
        "checkpoint": {"saveFreq": 1, "asynchronous": True, "maxToKeep": 2},
    }
    whole, parts = (make_config(**changes, runDirectory=str(tmp_path / name)) for name in ("whole", "parts"))
    assert start(whole).wait(timeout=300) == 0

    first = start(parts)
    until_step(first, 2)
    moment = random.uniform(0, 1)
    try:
        first.wait(timeout=moment)
    except subprocess.TimeoutExpired:
        os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    second = start(parts)
    output = "".join(until_step(second, STEPS))
    assert second.wait(timeout=300) == 0, moment
    assert "[warmup]" not in output, moment
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole"), moment
    exports = [tmp_path / "whole" / "export", tmp_path / "parts" / "export", tmp_path / "again"]
    last = tmp_path / "parts" / "checkpoints" / f"step-{STEPS}"
    assert main(["export", "--checkpoint", str(last), "--output", str(exports[-1])]) == 0
    assert len({(directory / "model.safetensors").read_bytes() for directory in exports}) == 1, moment


@pytest.mark.slow
def test_sigterm_saves_and_says_so(
    start: Callable[[TrainingConfig], subprocess.Popen[str]], make_config: MakeConfig, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = make_config(workers=1, training={"totalSteps": 1000}, checkpoint={"saveFreq": 1000}, runDirectory=str(run))
    process = start(config)
    until_step(process, 2)
    process.terminate()
    assert process.wait(timeout=120) == TERMINATED
    assert latest_complete(run / "checkpoints") == len(metrics(run))
