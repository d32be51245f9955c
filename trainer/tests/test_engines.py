"""Chunks go to idle engines, and the results have the order of the rows."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, cast

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.driver import engines as engines_module
from rlt_trainer.driver.engines import SeparateEngines
from rlt_trainer.workers.engine_worker import EngineWorker

ROWS = list(range(16))


class Engine:
    """A stand-in for a Ray actor, whose methods have a `remote`. `wait` returns when the engine may respond."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.generate = self
        self.taken: list[int] = []
        self._wait = wait

    def remote(self, rows: list[int]) -> list[int]:
        self.taken += rows
        self._wait()
        return [row * 10 for row in rows]


def test_a_slow_engine_takes_fewer_rows(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_started, all_taken = Event(), Event()

    def wait_for_the_fast_engine() -> None:
        slow_started.set()
        assert all_taken.wait(10), "the fast engine did not get the other rows"

    def wait_for_the_slow_engine() -> None:
        assert slow_started.wait(10)
        if set(slow.taken) | set(fast.taken) == set(ROWS):
            all_taken.set()

    slow, fast = Engine(wait_for_the_fast_engine), Engine(wait_for_the_slow_engine)

    class TwoEngines(list[Engine]):
        actors = (slow, fast)

    monkeypatch.setattr(engines_module, "WorkerGroup", lambda *_, **__: TwoEngines((slow, fast)))
    monkeypatch.setattr(engines_module, "results", lambda references: references)
    engines = SeparateEngines(make_config(), cast(Any, None))
    rows: list[Any] = engines.map(EngineWorker.generate, ROWS).result(20)
    assert rows == [row * 10 for row in ROWS]
    assert len(slow.taken) < len(ROWS) / 4
