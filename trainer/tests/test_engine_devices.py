"""The devices of colocated engines, in Ray with declared GPUs: no GPU is needed to read environment variables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.cluster.pods import training_pods
from rlt_trainer.cluster.process_variables import set_variables
from rlt_trainer.cluster.session import join_ray, leave_ray
from rlt_trainer.cluster.worker_group import WorkerGroup
from rlt_trainer.driver import engine_processes
from rlt_trainer.driver.engine_processes import ColocatedProcesses
from rlt_trainer.workers.train_worker import VISIBLE_DEVICES, TrainWorker


class Rank:
    """A train worker with its variable of Ray, and those that AMD's devices would have."""

    def __init__(self, config: TrainingConfig, rank: int, world_size: int, *, variables: Mapping[str, str]) -> None:
        self._rank = rank

    def visible_devices(self) -> dict[str, str]:
        own = os.environ["CUDA_VISIBLE_DEVICES"]
        return {"CUDA_VISIBLE_DEVICES": own, "HIP_VISIBLE_DEVICES": own, "ROCR_VISIBLE_DEVICES": f"GPU-{self._rank}"}


class Engine:
    """The part of a RolloutWorker that the test calls."""

    def __init__(self, config: TrainingConfig, number: int, *, variables: Mapping[str, str]) -> None:
        set_variables(variables)

    async def read_devices(self) -> dict[str, str]:
        """Return the variables that vLLM's processes inherit."""
        return {name: os.environ[name] for name in VISIBLE_DEVICES}


@pytest.fixture
def config(make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainingConfig]:
    """The config of a pod with two devices, in a Ray cluster that runs."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # the default of earlier versions of Ray
    config = make_config(workers=1, devicesPerWorker=2, cpusPerWorker=2)
    join_ray(config, local=True)
    yield config
    leave_ray(config)


@pytest.mark.slow
def test_each_engine_has_its_devices(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_processes, "RolloutWorker", Engine)
    workers = cast(WorkerGroup[TrainWorker], WorkerGroup(Rank, config, training_pods(config)))

    async def read_devices(processes: ColocatedProcesses) -> list[dict[str, str]]:
        read: Any = Engine.read_devices
        return [await processes.start(number).call(read) for number in range(len(processes))]

    def expect(*devices: str, agents: str) -> dict[str, str]:
        numbers = ",".join(devices)
        return {"CUDA_VISIBLE_DEVICES": numbers, "HIP_VISIBLE_DEVICES": numbers, "ROCR_VISIBLE_DEVICES": agents}

    seen = asyncio.run(read_devices(ColocatedProcesses(config, workers)))
    assert seen == [expect("0", agents="GPU-0"), expect("1", agents="GPU-1")]
    rollout = config.rollout.model_copy(update={"tensor_parallel_size": 2})
    both = config.model_copy(update={"rollout": rollout})
    assert asyncio.run(read_devices(ColocatedProcesses(both, workers))) == [expect("0", "1", agents="GPU-0,GPU-1")]
