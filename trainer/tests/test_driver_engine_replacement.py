"""The training goes on without an engine in a pod of its own, until the pod and the engine have been replaced."""

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
from rlt_trainer.workers.rollout_worker import RolloutWorker

MakeConfig = Callable[..., TrainingConfig]

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
    """It ends with its second batch of requests if it is the first process of `dies`. Others start after `begin`."""

    def __init__(self, worker: RolloutWorker, place: tuple[int, int], calls: Calls, *, dies: bool) -> None:
        super().__init__(worker)
        self._place = place
        self._calls = calls
        self._dies = dies
        self._is_dead = asyncio.Event()

    async def call(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        self._calls.made.append((*self._place, method.__name__))
        if self._dies and self._calls.count(*self._place, RolloutWorker.submit) == 2:
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


def train(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch, engines: int, dying: int | None) -> Any:
    """Train with some engines, of which the one with number `dying` ends. Return its calls and the metrics."""
    calls = Calls()
    starts: list[int] = []

    class Processes(in_process.LocalProcesses):
        def __len__(self) -> int:
            return engines

        def start(self, number: int) -> EngineProcess:
            super().start(number)
            place = (number, starts.count(number))
            starts.append(number)
            return RecordedProcess(self.workers[-1], place, calls, dies=place == (dying, 0))

    monkeypatch.setattr(in_process, "LocalProcesses", Processes)
    return calls, in_process.train(config)


@pytest.mark.slow
@pytest.mark.long
def test_steps_complete_before_a_lost_engine_is_replaced_and_it_joins_again(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(name: str) -> TrainingConfig:
        return make_config(**SEPARATE, rolloutWorkers=2, runDirectory=str(tmp_path / name))

    calls, lost = train(build("lost"), monkeypatch, 2, dying=1)
    assert calls.count(1, 1, RolloutWorker.start) == 1
    assert calls.count(1, 1, RolloutWorker.submit) >= 1
    steps_without = [each for each in calls.made if each[2] == RolloutWorker.end_step.__name__]
    assert steps_without.index((0, 0, "end_step")) < steps_without.index((1, 1, "end_step"))
    assert calls.count(1, 1, RolloutWorker.end_step) < STEPS

    _, whole = train(build("whole"), monkeypatch, 2, dying=None)
    for ours, theirs in zip(lost, whole, strict=True):
        for name in ("training/global_step", "critic/rewards/mean", "response_length/mean", "actor/grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_is_stopped_without_an_engine_saves_its_last_step(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted RayCluster ends all pods at once. Those of the engines end first."""

    async def wait_for_pod(self: RecordedProcess) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(RecordedProcess, "wait_for_pod", wait_for_pod)
    config = make_config(**SEPARATE, rolloutWorkers=1, checkpoint={"saveFreq": 100})
    with pytest.raises(Terminated, match=r"after step 1\. It can resume from .*step-1"):
        train(config, monkeypatch, 1, dying=0)
