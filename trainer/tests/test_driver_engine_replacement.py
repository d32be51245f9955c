"""The training continues without an engine in a separate pod, until the pod and the engine have been replaced."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import in_process
import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver.engine_processes import EngineLostError, EngineProcess
from rlt_trainer.errors import Terminated
from rlt_trainer.rollout.transformers_engine import TransformersEngine
from rlt_trainer.workers.rollout_worker import RolloutWorker

MakeConfig = Callable[..., TrainingConfig]
Method = Callable[..., Awaitable[Any]]

STEPS = 4
SEPARATE: dict[str, Any] = {
    "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
    "workers": 1,
    "rollout": {"mode": "separate", "workerGroup": "rollout"},
    "training": {"totalSteps": STEPS},
}


class Calls:
    """The calls of all engines: (number of the engine, number of its start, method)."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int, str]] = []

    def count(self, engine: int, start: int, method: Callable[..., Any]) -> int:
        return self.made.count((engine, start, method.__name__))


class RecordedProcess(in_process.LocalProcess):
    """It ends in the second call of `last`. The first process of an engine starts at once, others in another pod."""

    def __init__(self, worker: RolloutWorker, place: tuple[int, int], calls: Calls, last: Method | None) -> None:
        super().__init__(worker)
        self._place = place
        self._calls = calls
        self._last = last
        self._is_dead = asyncio.Event()

    async def call(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        self._calls.made.append((*self._place, method.__name__))
        if method is self._last and self._calls.count(*self._place, method) == 2:
            if method is RolloutWorker.receive_weights:
                await asyncio.to_thread(leave_transfer, self._worker)
            self._is_dead.set()
        if self._place[1] > 0 and method is RolloutWorker.start:
            await self.wait_for_pod()
        running = asyncio.ensure_future(super().call(method, *arguments, **options))
        death = asyncio.ensure_future(self._is_dead.wait())
        await asyncio.wait([running, death], return_when=asyncio.FIRST_COMPLETED)
        if self._is_dead.is_set():
            running.cancel()
            raise EngineLostError("the process ended")
        death.cancel()
        return running.result()

    async def wait_for_pod(self) -> None:
        """Wait for the pod that replaces the one of the first process."""
        while self._calls.count(0, 0, RolloutWorker.end_step) < 2:  # the other engine's
            await asyncio.sleep(0.01)


def leave_transfer(worker: RolloutWorker) -> None:
    """End between two buckets of a transfer, as a process that is killed."""
    engine = worker.engine
    assert isinstance(engine, TransformersEngine)
    channel = engine._channel
    assert channel.get() is not None
    channel.close()


def train(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch, engines: int, last: Method | None) -> Any:
    """Train with some engines, the last of which ends in the second call of `last`. Return calls and metrics."""
    calls = Calls()
    starts: list[int] = []

    class Processes(in_process.LocalProcesses):
        def __len__(self) -> int:
            return engines

        def start(self, number: int) -> EngineProcess:
            super().start(number)
            place = (number, starts.count(number))
            starts.append(number)
            is_dying = place == (engines - 1, 0)
            return RecordedProcess(self.workers[-1], place, calls, last if is_dying else None)

    monkeypatch.setattr(in_process, "LocalProcesses", Processes)
    return calls, in_process.train(config)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("last", [RolloutWorker.submit, RolloutWorker.receive_weights], ids=lambda last: last.__name__)
def test_steps_complete_before_a_lost_engine_is_replaced_and_it_joins_again(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, last: Method
) -> None:
    def build(name: str) -> TrainingConfig:
        return make_config(**SEPARATE, rolloutWorkers=3, runDirectory=str(tmp_path / name))

    calls, lost = train(build("lost"), monkeypatch, 3, last)
    assert calls.count(2, 1, RolloutWorker.start) == 1
    assert calls.count(2, 1, RolloutWorker.submit) >= 1
    ends = [each for each in calls.made if each[2] == RolloutWorker.end_step.__name__]
    assert ends.index((0, 0, "end_step")) < ends.index((2, 1, "end_step"))
    assert calls.count(2, 1, RolloutWorker.end_step) < STEPS

    _, whole = train(build("whole"), monkeypatch, 3, None)
    for ours, theirs in zip(lost, whole, strict=True):
        for name in ("training/global_step", "critic/rewards/mean", "response_length/mean", "actor/grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_is_stopped_without_an_engine_saves_its_last_step(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted RayCluster ends all pods at once. The rollout pods end first."""

    async def wait_for_pod(self: RecordedProcess) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(RecordedProcess, "wait_for_pod", wait_for_pod)
    config = make_config(**SEPARATE, rolloutWorkers=1, checkpoint={"saveFreq": 100})
    with pytest.raises(Terminated, match=r"after step 1\. It can resume from .*step-1"):
        train(config, monkeypatch, 1, RolloutWorker.submit)
