"""Suites beside the update of the next step, with engines in separate pods."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from threading import Event
from typing import Any

import in_process
import pytest
from in_process import train
from ranks import run_process

from rlt_api.spec.training_config import TrainingConfig
from rlt_pod.report.step_history import METRICS_FILE, read_history
from rlt_trainer.checkpoint.marker import find_latest_step, read_marks
from rlt_trainer.driver.engine_processes import EngineLostError, EngineProcess
from rlt_trainer.driver.evaluations import Evaluations
from rlt_trainer.driver.rollouts import PendingGroup, RolloutSampler
from rlt_trainer.driver.run import run
from rlt_trainer.errors import Terminated
from rlt_trainer.workers.rollout_worker import RolloutWorker
from rlt_trainer.workers.train_worker import TrainWorker

pytestmark = pytest.mark.slow

MakeConfig = Callable[..., TrainingConfig]
STEPS = 3
TIMEOUT_S = 60
SCORE = "val/test/reward/mean"
SEPARATE = {"mode": "separate", "workerGroup": "engines"}
JOB: dict[str, Any] = {
    "workers": 1,
    "data": {"preset": "digits"},
    "rewards": [{"name": "regex", "options": {"pattern": "[a-z0-9]"}}],
    "training": {"totalSteps": STEPS},
    "rollout": SEPARATE,
    "evaluation": [{"name": "test", "every": 1, "beforeTrain": True}],
}


def read_rows(config: TrainingConfig) -> dict[int, dict[str, Any]]:
    """Read the rows by step, without timings."""
    lines = read_history(Path(config.run_directory) / METRICS_FILE, after=-1).splitlines()
    measured = ("timing", "overlap", "perf/")
    return {
        row["step"]: {key: value for key, value in row.items() if not key.startswith(measured)}
        for row in map(json.loads, lines)
    }


@pytest.mark.parametrize("rollout", [{}, {"staleness": {"maxSteps": 1}}], ids=["on-policy", "one-step-off"])
def test_the_suites_of_a_step_run_beside_the_next_update(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, rollout: dict[str, Any]
) -> None:
    """Each update allows the suites to generate, and waits for them."""
    evaluations: list[tuple[Event, list[PendingGroup]]] = []
    run_suites = RolloutSampler._run_suites
    update_actor = TrainWorker.update_actor

    def hold(sampler: RolloutSampler, suites: Any, pending: Any) -> Coroutine[Any, Any, None]:
        may_start = Event()
        if len(evaluations) == STEPS:  # the training waits for the last one
            may_start.set()
        evaluations.append((may_start, [group for suite in pending for group in suite]))

        async def run() -> None:
            assert await asyncio.to_thread(may_start.wait, TIMEOUT_S)
            await run_suites(sampler, suites, pending)

        return run()

    def update(worker: TrainWorker, batches: Any) -> Any:
        may_start, groups = evaluations[-1]
        may_start.set()
        for group in groups:
            group.generated.result(TIMEOUT_S)
        return update_actor(worker, batches)

    monkeypatch.setattr(RolloutSampler, "_run_suites", hold)
    monkeypatch.setattr(TrainWorker, "update_actor", update)
    config = make_config(**{**JOB, "rollout": {**SEPARATE, **rollout}})
    train(config)
    spans = [json.loads(line) for line in (Path(config.run_directory) / "spans.jsonl").read_text().splitlines()]
    for step in range(1, STEPS + 1):
        driver = [span for span in spans if span["step"] == step and span["rank"] == -1]
        (updating,) = (span for span in driver if span["phase"] == "update_actor")
        testing = min((span for span in driver if span["phase"] == "testing"), key=lambda span: span["start"])
        assert testing["thread"] != updating["thread"]
        assert updating["start"] < testing["start"] < testing["end"] < updating["end"]
    rows = read_rows(config)
    assert list(rows) == list(range(STEPS + 1))
    assert all(SCORE in row for row in rows.values())


@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_suites_beside_the_updates_change_no_step_with_vllm(make_config: MakeConfig, tmp_path: Path) -> None:
    def train_with_vllm(name: str, changes: dict[str, Any]) -> dict[int, dict[str, Any]]:
        rollout = {**SEPARATE, "engine": "vllm"}
        config = make_config(
            **{**JOB, "rolloutWorkers": 1, "rollout": rollout, **changes}, runDirectory=str(tmp_path / name)
        )
        run(config, local=False)
        return read_rows(config)

    plain = train_with_vllm("plain", {"evaluation": []})
    evaluated = train_with_vllm("evaluated", {})
    assert all(SCORE in row for row in evaluated.values())
    assert list(plain) == list(range(1, STEPS + 1))
    for step, row in plain.items():
        for metric in ("critic/rewards/mean", "response_length/mean", "actor/grad_norm", "actor/entropy"):
            assert evaluated[step][metric] == pytest.approx(row[metric], rel=1e-4), (step, metric)
        assert evaluated[step]["training/weight_sync_difference"] < 1e-4


def train_until_signal(config: TrainingConfig, owner: type, method: str, call: int, number: int) -> None:
    """Train until this call of a method, at whose start the process gets a signal."""
    original = getattr(owner, method)
    calls = 0

    def count(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), number)
        return original(*arguments)

    pytest.MonkeyPatch().setattr(owner, method, count)
    try:
        train(config)
    except Terminated:
        os._exit(128 + number)  # the engine's thread may still be generating


def test_a_run_that_ends_before_the_values_of_a_step_evaluates_its_checkpoint(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    whole = make_config(**JOB, runDirectory=str(tmp_path / "whole"))
    train(whole)
    expected = read_rows(whole)
    cases: list[tuple[type, str, int, int, bool]] = [
        (TrainWorker, "end_step", 1, signal.SIGKILL, False),  # before the row of step 1
        (TrainWorker, "update_actor", 2, signal.SIGKILL, True),  # beside the evaluation
        (Evaluations, "start", 2, signal.SIGTERM, True),
    ]
    for owner, method, call, number, is_recorded in cases:
        run = tmp_path / method
        parts = make_config(
            **JOB, checkpoint={"saveFreq": 100 if number == signal.SIGTERM else 1}, runDirectory=str(run)
        )
        exit_code = run_process(train_until_signal, parts, owner, method, call, number)
        assert exit_code == (-number if number == signal.SIGKILL else 128 + number), method
        assert find_latest_step(run / "checkpoints") == 1, method
        before = read_rows(parts)
        assert (1 in before, SCORE in before.get(1, {})) == (is_recorded, False), method
        lines = train(parts)
        assert read_rows(parts) == expected, method
        assert sum(line["step"] == 1 and SCORE in line for line in lines) == 1, method


def test_a_checkpoint_of_keep_best_has_its_score(make_config: MakeConfig) -> None:
    config = make_config(**JOB, checkpoint={"saveFreq": 2, "keepBest": True})
    lines = train(config)
    rows = read_rows(config)
    saved = read_marks(Path(config.run_directory) / "checkpoints").values()
    assert {mark.step: mark.score for mark in saved} == {step: rows[step][SCORE] for step in (2, 3)}
    assert [line["step"] for line in lines] == [0, 1, 1, 2, 3]  # the rows of saved steps are complete at once


def test_values_of_newer_weights_are_left_out(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The only engine ends when it gets the requests of the suite after step 1. Another one gets newer weights."""
    evaluations = 0
    start_suites = RolloutSampler.start_suites

    def start(sampler: RolloutSampler, suites: Any) -> list[list[PendingGroup]]:
        nonlocal evaluations
        evaluations += 1
        return start_suites(sampler, suites)

    class EndingProcess(in_process.LocalProcess):
        async def call(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
            if method is RolloutWorker.submit and evaluations == 2 and self is first:
                raise EngineLostError("the process ended")
            return await super().call(method, *arguments, **options)

    first: EngineProcess | None = None

    class Processes(in_process.LocalProcesses):
        def start(self, number: int) -> EngineProcess:
            nonlocal first
            super().start(number)
            process = EndingProcess(self.workers[-1])
            first = first or process
            return process

    whole, lossy = (make_config(**JOB, runDirectory=str(tmp_path / name)) for name in ("whole", "lossy"))
    train(whole)
    monkeypatch.setattr(RolloutSampler, "start_suites", start)
    monkeypatch.setattr(in_process, "LocalProcesses", Processes)
    train(lossy)
    assert "step 1 has no values of its suites" in caplog.text
    rows = read_rows(lossy)
    expected = read_rows(whole)
    assert not any(name.startswith("val") for name in rows[1])
    assert not (tmp_path / "lossy/evaluation/test/step-1.parquet").exists()
    expected[1] = {name: value for name, value in expected[1].items() if not name.startswith("val")}
    assert rows == expected
