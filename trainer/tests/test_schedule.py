"""When the batch of each step is generated, and with which weights."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from rlt_trainer.driver.schedule import Schedule


class Generation:
    """Returns the number of weight updates at the start of the generation as its batch."""

    def __init__(self) -> None:
        self.updates = 0
        self.started: list[int] = []

    def start(self, step: int) -> Future[int]:
        self.started.append(step)
        future: Future[int] = Future()
        future.set_result(self.updates)
        return future


@pytest.mark.parametrize(
    ("max_staleness", "ages"), [(0, [0, 0, 0, 0, 0]), (1, [0, 1, 1, 1, 1]), (3, [0, 1, 2, 3, 3]), (9, [0, 1, 2, 3, 4])]
)
def test_batches_are_at_most_max_staleness_updates_old(max_staleness: int, ages: list[int]) -> None:
    generation = Generation()
    seen = []
    for step, weights in Schedule(generation.start, range(1, 6), max_staleness=max_staleness):
        seen.append((step, generation.updates - weights))
        generation.updates += 1
    assert seen == list(enumerate(ages, 1))
    assert generation.started == [1, 2, 3, 4, 5]


def test_on_policy_generation_starts_with_the_step() -> None:
    generation = Generation()
    schedule = iter(Schedule(generation.start, range(3, 6), max_staleness=0))
    assert next(schedule) == (3, 0)
    assert generation.started == [3]


def test_restored_batches_are_not_generated_again() -> None:
    generation = Generation()
    schedule = Schedule(generation.start, range(1, 6), max_staleness=2)
    next(iter(schedule))
    assert schedule.finished(after=1) == {2: 0, 3: 0}
    resumed = Generation()
    rest = Schedule(resumed.start, range(2, 6), max_staleness=2, finished={2: 20, 3: 30})
    assert dict(rest) == {2: 20, 3: 30, 4: 0, 5: 0}
    assert resumed.started == [4, 5]


def test_a_failed_generation_ends_the_run_at_its_step() -> None:
    def start(step: int) -> Future[int]:
        future: Future[int] = Future()
        if step == 3:
            future.set_exception(RuntimeError("engine lost"))
        else:
            future.set_result(step)
        return future

    schedule = Schedule(start, range(1, 6), max_staleness=2)
    seen = []
    with pytest.raises(RuntimeError, match="engine lost"):
        seen += [step for step, _ in schedule]
    assert list(schedule.finished(after=2)) == [4, 5]


def test_the_batch_of_an_interrupted_step_is_saved() -> None:
    generation = Generation()
    schedule = Schedule(generation.start, range(1, 6), max_staleness=1)
    steps = iter(schedule)
    next(steps)
    next(steps)
    assert list(schedule.finished(after=1)) == [2, 3]
