"""An engine whose process ends during a step is started again, and the run ends with all steps."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import in_process
import psutil  # type: ignore[import-untyped]
import pytest

from rlt_api.spec.training_config import TrainingConfig
from rlt_trainer.driver import engine_processes, engines
from rlt_trainer.driver.engine_processes import EngineLostError, EngineProcess
from rlt_trainer.driver.run import run
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.engine import Request
from rlt_trainer.workers.rollout_worker import EngineInfo, RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

REWARD: dict[str, Any] = {"rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}], "workers": 1}
SEPARATE = {"mode": "separate", "workerGroup": "rollout"}
STEPS = 3


def build_mortal(deaths: Path, limit: int) -> type[RolloutWorker]:
    """Build a RolloutWorker that kills its process after the requests of its second step, up to `limit` times.

    `deaths` has a file for each time.
    """

    class Mortal(RolloutWorker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._calls = 0

        async def submit(self, requests: Sequence[Request]) -> None:
            await super().submit(requests)
            self._calls += 1
            died = len(list(deaths.iterdir()))
            if died < limit and (died > 0 or self._calls == 2):
                with suppress(FileExistsError):  # another engine dies
                    (deaths / str(died)).touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)

    return Mortal


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("mode", "deaths"),
    [({}, 1), ({"rollout": SEPARATE, "rolloutWorkers": 2}, 2)],  # 2: both engines
    ids=["colocated", "separate"],
)
def test_a_run_whose_engines_are_killed_has_all_steps(
    make_config: Callable[..., TrainingConfig],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    mode: dict[str, Any],
    deaths: int,
) -> None:
    def train(name: str, deaths: int) -> list[dict[str, Any]]:
        folder = tmp_path / f"{name}-deaths"
        folder.mkdir()
        monkeypatch.setattr(engine_processes, "RolloutWorker", build_mortal(folder, deaths))
        config = make_config(**REWARD, **mode, training={"totalSteps": STEPS}, runDirectory=str(tmp_path / name))
        run(config, local=False)
        assert len(list(folder.iterdir())) == deaths
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    killed = train("killed", deaths)
    whole = train("whole", 0)
    assert [step["training/global_step"] for step in killed] == list(range(1, STEPS + 1))
    for ours, theirs in zip(killed, whole, strict=True):  # the same responses, from the same weights
        for name in ("critic/rewards/mean", "response_length/mean", "actor/grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_run_whose_engine_dies_again_and_again_ends(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "deaths").mkdir()
    monkeypatch.setattr(engine_processes, "RolloutWorker", build_mortal(tmp_path / "deaths", 100))
    with pytest.raises(TrainingError, match=r"The process of a Mortal .* died"):
        run(make_config(**REWARD), local=False)
    assert len(list((tmp_path / "deaths").iterdir())) == 4


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_train_workers_release_memory_before_each_start_of_a_colocated_engine(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the start of the run, and in the second step, when a train worker has its moments."""
    events = tmp_path / "events"
    deaths = tmp_path / "deaths"
    deaths.mkdir()

    def add(event: str) -> None:
        with events.open("a") as file:
            file.write(f"{event}\n")

    class Starting(build_mortal(deaths, 1)):  # type: ignore[misc] # a base that a function returns
        async def start(self) -> EngineInfo:
            add("start")
            return await super().start()  # type: ignore[no-any-return]

    class Releasing(TrainWorker):
        def release_memory(self, before: str) -> None:
            add(f"release before {before}")
            super().release_memory(before)

    monkeypatch.setattr(engine_processes, "RolloutWorker", Starting)
    monkeypatch.setattr("rlt_trainer.driver.run.TrainWorker", Releasing)
    run(make_config(**REWARD, training={"totalSteps": 2}), local=False)
    start = ["release before start", "start"]
    sync = ["release before weights", "release before kv_cache"]
    assert events.read_text().splitlines() == [*start, *sync, *sync, *start, *sync, *sync]


def build_killer(process: str) -> type[RolloutWorker]:
    """Build a RolloutWorker that kills one of vLLM's processes by its name, once, after the requests of its second
    step."""

    class Killer(RolloutWorker):
        calls = 0

        async def submit(self, requests: Sequence[Request]) -> None:
            await super().submit(requests)
            self.calls += 1
            flag = Path(self._config.run_directory, "killed")
            if self.calls == 2 and not flag.exists():
                flag.touch()
                raylet = psutil.Process().parent()
                assert raylet is not None
                found = [each for each in raylet.children(recursive=True) if process in each.name()]
                assert len(found) == 1
                found[0].kill()

    return Killer


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_a_run_whose_vllm_loses_a_process_has_all_steps(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The scheduler of an engine in one pod, and a worker in the second pod of an engine in two."""

    def train(name: str, size: int) -> list[dict[str, Any]]:
        changes: dict[str, Any] = {
            **REWARD,
            "rolloutWorkers": size,
            "rollout": {**SEPARATE, "engine": "vllm", "tensorParallelSize": size},
            "training": {"totalSteps": 2},
        }
        run(make_config(**changes, runDirectory=str(tmp_path / name)), local=False)
        return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    whole = train("whole", 1)
    for process, size in (("VLLM::EngineCore", 1), ("VLLM::Worker_TP1", 2)):
        monkeypatch.setattr(engine_processes, "RolloutWorker", build_killer(process))
        killed = train(process, size)
        assert (tmp_path / process / "killed").exists()
        assert [step["training/global_step"] for step in killed] == [1, 2]
        for ours, theirs in zip(killed, whole, strict=True):
            for name in ("critic/rewards/mean", "response_length/mean", "actor/grad_norm"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-4), (process, name)
            assert ours["training/weight_sync_difference"] < 1e-4


class EndingProcess(in_process.LocalProcess):
    """The process of an engine that ends when `last` is called."""

    def __init__(self, worker: RolloutWorker, last: Callable[..., Any] | None) -> None:
        super().__init__(worker)
        self._last = last

    async def call(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        if method is self._last:
            raise EngineLostError("the process ended")
        return await super().call(method, *arguments, **options)


@pytest.mark.slow
@pytest.mark.long
def test_engines_that_end_before_their_first_weight_sync_are_started_again(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: Iterator[Callable[..., Any]] = iter(
        [RolloutWorker.ended, RolloutWorker.start, RolloutWorker.open_channel, RolloutWorker.sum_weights]
    )

    class EndingProcesses(in_process.LocalProcesses):
        def start(self, number: int) -> EngineProcess:
            super().start(number)
            return EndingProcess(self.workers[-1], next(ends, None))

    monkeypatch.setattr(in_process, "LocalProcesses", EndingProcesses)
    monkeypatch.setattr(engines, "MAX_LOSSES", 4)
    steps = in_process.train(make_config(**REWARD, training={"totalSteps": 2}))
    assert [step["training/global_step"] for step in steps] == [1, 2]
    assert next(ends, None) is None
