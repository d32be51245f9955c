"""The phases of a step add up, with nested and concurrent spans."""

from __future__ import annotations

import threading

import pytest

from rlt_trainer.telemetry.spans import (
    DRIVER,
    Span,
    compute_exclusive_seconds,
    compute_overlap_seconds,
    compute_phase_seconds,
    compute_step_seconds,
)
from rlt_trainer.telemetry.stopwatch import Stopwatch


def span(phase: str, start: float, end: float, *, rank: int = DRIVER, thread: int = 0) -> Span:
    return Span(rank, phase, start, end, 1, thread)


STEP = [span("step", 0, 10), span("gen", 1, 4), span("update_actor", 4, 9), span("save_checkpoint", 5, 7)]


def test_phases_and_unaccounted_time_add_up_to_the_step() -> None:
    seconds = compute_step_seconds([*STEP, span("gen", 2, 8, thread=1), span("export", 20, 30)])
    assert seconds == {"gen": 3, "update_actor": 3, "save_checkpoint": 2, "unaccounted": 2, "step": 10}


def test_a_phase_nested_in_itself_counts_once() -> None:
    assert compute_exclusive_seconds([span("gen", 0, 4), span("gen", 1, 2)]) == {"gen": 4}
    assert compute_phase_seconds([span("gen", 0, 4), span("gen", 1, 2), span("gen", 6, 7)], "gen") == 5


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([span("gen", 1, 4, rank=0), span("gen", 2, 4, rank=1)], 0),  # one after the other
        ([span("gen", 2, 8, rank=0), span("gen", 3, 9, rank=1)], 5),  # 4 to 9
        ([span("gen", -6, 2, rank=0)], 7),  # begun in the step before
        ([span("offload", 5, 6, rank=0)], 0),  # not a phase of the driver
    ],
)
def test_time_concurrent_with_other_phases_is_overlap(ranks: list[Span], expected: float) -> None:
    assert compute_overlap_seconds(STEP, ranks)["gen"] == expected


def test_engines_that_generate_for_a_suite_beside_the_update_are_testing() -> None:
    driver = [*STEP, span("testing", 4, 8, thread=1), span("testing", 7.5, 8)]
    found = compute_overlap_seconds(driver, [span("gen", 2, 8, rank=1), span("gen", 8.5, 9, rank=1)])
    assert (found["gen"], found["testing"]) == (0.5, 3.5)


def test_the_stopwatch_records_nesting_threads_and_exceptions() -> None:
    watch = Stopwatch(step=3)

    def fail() -> None:
        with pytest.raises(ValueError, match="no"), watch.measure("reward"):
            raise ValueError("no")

    with watch.measure("step"), watch.measure("gen"):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    spans = watch.take()
    assert [(each.phase, each.thread, each.step, each.rank) for each in spans] == [
        ("reward", 1, 3, DRIVER),
        ("gen", 0, 3, DRIVER),
        ("step", 0, 3, DRIVER),
    ]
    reward, gen, step = spans
    assert step.start <= gen.start <= reward.start <= reward.end <= gen.end <= step.end
    assert watch.take() == []
    assert sum(compute_exclusive_seconds([gen, step]).values()) == pytest.approx(step.end - step.start)
