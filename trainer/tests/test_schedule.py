"""Which groups are sent when, and which of them are the batch of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise

import pytest

from rlt_trainer.data.prompt import Prompt
from rlt_trainer.driver.rollouts import PendingGroup
from rlt_trainer.driver.schedule import Group, Schedule, Selection, choose_groups
from rlt_trainer.errors import TrainingError

SIZE = 4
LAST = 9


class Generation:
    """Sends groups that end when the test ends them. `end_next` is called when the schedule waits."""

    def __init__(self, max_staleness: int, *, selection: Selection | None = None, last_step: int = LAST) -> None:
        self.groups: list[Group] = []
        self.waits: list[bool] = []
        self.end_next: Callable[[], None] = self.end_all
        self.schedule = Schedule(
            self._start,
            size=SIZE,
            max_staleness=max_staleness,
            last_step=last_step,
            selection=selection,
            wait=self._wait,
        )

    def _start(self, step: int) -> list[Group]:
        first = len(self.groups)
        self.groups += [build_group(first + row, step) for row in range(SIZE)]
        return self.groups[first:]

    def _wait(self, changed: Future[None], is_generating: bool) -> None:
        assert len(self.waits) < 1000
        self.waits.append(is_generating)
        self.end_next()
        changed.result(0)  # the end of a group wakes the schedule

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.groups[number].pending.generated.set_result(None)
            self.groups[number].pending.scored.set_result([])

    def end_all(self) -> None:
        self.end(*(group.number for group in self.groups if not group.pending.scored.done()))

    def batch(self, step: int) -> list[int]:
        return [group.number for group in self.schedule.next_batch(step)]


def build_group(number: int, started: int) -> Group:
    return Group(number, started, Prompt(number, (1,), "", "", "", ""), [number], PendingGroup())


def test_an_on_policy_batch_has_the_prompts_that_are_sent_in_its_step() -> None:
    generation = Generation(0)
    for step in range(1, 4):
        assert generation.batch(step) == list(range((step - 1) * SIZE, step * SIZE))
        assert {group.started for group in generation.groups[(step - 1) * SIZE :]} == {step}


def test_one_step_off_a_batch_is_the_generation_of_the_step_before() -> None:
    generation = Generation(1)
    generation.end_next = lambda: generation.end(0, 1, 2, 3)
    assert generation.batch(1) == [0, 1, 2, 3]
    for step in range(2, 5):
        first = (step - 1) * SIZE
        # the groups of the next generation end first, but would not be too old in the next step
        generation.end_next = lambda: generation.end_all()
        assert generation.batch(step) == [first, first + 1, first + 2, first + 3]


@pytest.mark.parametrize("max_staleness", range(2, 6))
def test_a_slow_group_does_not_delay_a_batch_until_it_would_be_too_old(max_staleness: int) -> None:
    generation = Generation(max_staleness)
    generation.end_next = lambda: generation.end(
        *(group.number for group in generation.groups if group.number != 0 and not group.pending.scored.done())
    )
    for step in range(1, max_staleness + 1):
        batch = generation.batch(step)
        assert 0 not in batch
        assert batch == sorted(batch)
    generation.end_next = generation.end_all
    assert 0 in generation.batch(max_staleness + 1)  # sent in step 1
    assert len(generation.waits) >= 2


@pytest.mark.parametrize("max_staleness", range(6))
@pytest.mark.parametrize("order", [1, -1, 7], ids=["oldest first", "newest first", "mixed"])
def test_every_group_is_in_one_batch_within_the_bound(max_staleness: int, order: int) -> None:
    generation = Generation(max_staleness)

    def end_one() -> None:
        unfinished = [group.number for group in generation.groups if not group.pending.scored.done()]
        generation.end(sorted(unfinished, key=lambda number: number * order % 31)[0])

    generation.end_next = end_one
    seen: list[int] = []
    for step in range(1, LAST + 1):
        batch = generation.batch(step)
        assert len(batch) == SIZE
        assert all(step - generation.groups[number].started <= max_staleness for number in batch)
        seen += batch
    assert sorted(seen) == [group.number for group in generation.groups] == list(range(SIZE * LAST))


@pytest.mark.parametrize(("max_staleness", "sent"), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3)])
def test_half_of_the_bound_is_sent_ahead_but_nothing_after_the_last_step(max_staleness: int, sent: int) -> None:
    generation = Generation(max_staleness)
    generation.batch(1)
    assert len(generation.groups) == sent * SIZE
    last = Generation(max_staleness, last_step=1)
    last.batch(1)
    assert len(last.groups) == SIZE


@pytest.mark.parametrize(("max_staleness", "sent"), [(0, 1), (1, 3), (2, 3)])
def test_the_groups_of_a_step_can_be_sent_before_it_begins(max_staleness: int, sent: int) -> None:
    generation = Generation(max_staleness)
    generation.batch(1)
    generation.schedule.send_ahead(2)
    assert len(generation.groups) == sent * SIZE
    generation.batch(2)
    assert len(generation.groups) == max(2, sent) * SIZE
    generation.schedule.send_ahead(LAST + 1)
    assert len(generation.groups) == max(2, sent) * SIZE


def test_a_batch_whose_responses_are_complete_waits_for_scores() -> None:
    generation = Generation(0)

    def respond() -> None:
        for group in generation.groups:
            group.pending.generated.set_result(None)
        generation.end_next = score

    def score() -> None:
        for group in generation.groups:
            group.pending.scored.set_result([])

    generation.end_next = respond
    assert generation.batch(1) == [0, 1, 2, 3]
    assert generation.waits == [True, False]


class Even:
    """Keeps groups with even numbers."""

    def __init__(self, *, limit: int = 99) -> None:
        self.kept: list[Sequence[int]] = []
        self.limit = limit

    def keep(self, groups: Sequence[Group]) -> list[Group]:
        self.kept.append([group.number for group in groups])
        return [group for group in groups if group.number % 2 == 0]

    def validate_progress(self, step: int, ready: int) -> None:
        if len(self.kept) == self.limit:
            raise TrainingError(f"step {step}: {ready} of {SIZE}")


def test_on_policy_selection_takes_one_generation_after_another() -> None:
    even = Even()
    generation = Generation(0, selection=even)
    assert generation.batch(1) == [0, 2, 4, 6]
    assert even.kept == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert generation.batch(2) == [8, 10, 12, 14]
    assert {group.started for group in generation.groups[8:]} == {2}


def test_stale_selection_has_several_generations_in_progress() -> None:
    even = Even()
    generation = Generation(2, selection=even)
    # 0 is slow: its generation waits, others do not
    generation.end_next = lambda: generation.end(
        *(group.number for group in generation.groups if group.number != 0 and not group.pending.scored.done())
    )
    assert generation.batch(1) == [4, 6, 8, 10]
    assert even.kept == [[4, 5, 6, 7], [8, 9, 10, 11]]
    generation.end(0)
    assert generation.batch(2)[:2] == [0, 2]


def test_selection_without_progress_ends_the_run() -> None:
    with pytest.raises(TrainingError, match="step 1: 2 of 4"):
        Generation(0, selection=Even(limit=1)).batch(1)


@pytest.mark.parametrize("max_staleness", [0, 2])
def test_the_batch_of_an_interrupted_step_and_later_groups_are_restored(max_staleness: int) -> None:
    generation = Generation(max_staleness)
    generation.batch(1)
    second = generation.batch(2)
    ready, others = generation.schedule.groups_ahead(1)
    assert [group.number for group in ready][:SIZE] == second
    assert generation.schedule.groups_ahead(2)[0] == ready[SIZE:]

    resumed = Generation(max_staleness)
    resumed.groups = generation.groups
    resumed.schedule.restore(ready, others)
    assert resumed.batch(2) == second
    batches = [number for step in range(3, LAST + 1) for number in resumed.batch(step)]
    assert sorted(batches) == list(range(2 * SIZE, LAST * SIZE))


def test_on_policy_groups_of_an_incomplete_batch_are_not_saved() -> None:
    generation = Generation(0, selection=Even())

    def interrupt() -> None:
        raise KeyboardInterrupt

    generation.end_next = interrupt
    with pytest.raises(KeyboardInterrupt):
        generation.batch(1)
    assert generation.schedule.groups_ahead(0) == ([], [])


def test_a_group_that_would_be_too_old_is_awaited() -> None:
    old = [build_group(number, 1) for number in range(SIZE)]
    new = [build_group(9 + n, 2) for n in range(SIZE)]
    for step, is_chosen in [(2, True), (3, False)]:
        chosen = choose_groups(new, old, step=step, size=SIZE, max_staleness=2)
        assert (chosen == new) == is_chosen
    both = choose_groups([*old[1:], *new], old[:1], step=2, size=SIZE, max_staleness=2)
    assert both == [*old[1:], new[0]]
    assert all(left.number < right.number for left, right in pairwise(both))
