"""Rows go to the engines that are idle, and come back in their order."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, cast

import pytest

from rlt_api.training_config import TrainingConfig
from rlt_trainer.driver import engines as engines_module
from rlt_trainer.driver.engines import SeparateEngines
from rlt_trainer.driver.worker_group import TrainWorkers

ROWS = list(range(16))


class Engine:
    """Answers at once, or when it may. In the place of a Ray actor, whose methods have a `remote`."""

    def __init__(self, may_answer: Callable[[], None]) -> None:
        self.call = self
        self.taken: list[int] = []
        self._may_answer = may_answer

    def remote(self, method: str, rows: list[int]) -> list[int]:
        self.taken += rows
        self._may_answer()
        return [row * 10 for row in rows]


def test_an_engine_that_is_slow_takes_fewer_rows(
    make_config: Callable[..., TrainingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_has_begun, others_done = Event(), Event()

    def last_of_all() -> None:
        slow_has_begun.set()
        assert others_done.wait(10), "the fast engine was not given the rows that were left"

    def at_once() -> None:
        assert slow_has_begun.wait(10)
        if set(slow.taken) | set(fast.taken) == set(ROWS):
            others_done.set()

    slow, fast = Engine(last_of_all), Engine(at_once)

    class TwoEngines(list[Engine]):
        actors = (slow, fast)

    monkeypatch.setattr(engines_module, "WorkerGroup", lambda *_, **__: TwoEngines((slow, fast)))
    monkeypatch.setattr(engines_module, "results", lambda references: references)
    engines = SeparateEngines(make_config(), cast(TrainWorkers, None))
    rows: list[Any] = engines.map("generate", ROWS).result(20)
    assert rows == [row * 10 for row in ROWS]
    assert len(slow.taken) < len(ROWS) / 4
