"""After an error of the run, the engines and their event loop are closed, and the error is the last message."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import in_process
import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver import engines
from rlt_trainer.driver.engine_processes import EngineLostError
from rlt_trainer.workers.rollout_worker import RolloutWorker

ESTIMATOR = """
def fail(inputs):
    raise ValueError("the estimator failed")
"""
PROGRAM = """
import sys
from in_process import train
from rlt_api.spec.training_config import TrainingConfig
train(TrainingConfig.model_validate_json(sys.argv[1]))
"""


@pytest.fixture
def config(make_config: Callable[..., TrainingConfig], tmp_path: Path) -> TrainingConfig:
    """The config of a run whose first step fails, while the engine generates the responses of the next one."""
    (tmp_path / "failing_estimator.py").write_text(ESTIMATOR)
    return make_config(
        workers=1,
        algorithm={"advantageFunction": {"name": "failing_estimator:fail"}},
        rollout={"staleness": {}, "mode": "separate", "workerGroup": "rollout"},
    )


def test_no_task_is_destroyed_after_the_error(config: TrainingConfig, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, config.model_dump_json(by_alias=True)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    assert "Task was destroyed" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith("ValueError: the estimator failed")


async def never(worker: RolloutWorker) -> None:
    """Does not return."""
    await asyncio.Event().wait()


async def be_lost(worker: RolloutWorker) -> None:
    """Raises the error of a process that has ended."""
    raise EngineLostError("the process has ended")


@pytest.mark.parametrize("close", [never, be_lost])
def test_an_engine_that_does_not_close_neither_hides_the_error_nor_blocks(
    config: TrainingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, close: Callable[..., Awaitable[Any]]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(engines, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(RolloutWorker, "close", close)
    with pytest.raises(ValueError, match="the estimator failed"):
        in_process.train(config)
