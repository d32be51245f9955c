"""The deadline for progress: explicit, by default, and after the last step. Times are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlt_pod.report.step_history import format_step
from rlt_pod.supervise.watchdog import MIN_DEFAULT_S, Deadline, Watchdog


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def add_step(file: Path, step: int) -> None:
    with file.open("ab") as opened:
        opened.write(format_step(step, {"loss": 1.0}))


def test_a_given_deadline_counts_from_the_start_and_from_each_step(file: Path) -> None:
    watchdog = Watchdog(file, Deadline(60, None, None), now=0)
    assert watchdog.find_broken_limit(60) is None
    add_step(file, 1)
    assert watchdog.find_broken_limit(61) is None
    assert watchdog.find_broken_limit(121) is None
    assert watchdog.find_broken_limit(122) == 60
    assert watchdog.interval == 6


def test_steps_of_an_earlier_attempt_do_not_count(file: Path) -> None:
    add_step(file, 1)
    assert Watchdog(file, Deadline(60, None, None), now=0).find_broken_limit(61) == 60


def test_zero_disables_the_deadline(file: Path) -> None:
    watchdog = Watchdog(file, Deadline(0, 10, None), now=0)
    assert watchdog.find_broken_limit(1e9) is None
    assert watchdog.interval == float("inf")


def test_the_default_is_ten_times_the_longest_step(file: Path) -> None:
    watchdog = Watchdog(file, Deadline(None, None, None), now=0)
    assert watchdog.find_broken_limit(1e6) is None  # a command before its first step
    now = 1e6
    for step in range(1, 4):
        add_step(file, step)
        now += 500
        assert watchdog.find_broken_limit(now) is None
    assert watchdog.find_broken_limit(now + 5000) is None
    assert watchdog.find_broken_limit(now + 5001) == 5000


def test_the_default_has_a_minimum_and_a_limit_for_the_first_step(file: Path) -> None:
    watchdog = Watchdog(file, Deadline(None, 7200, None), now=0)
    assert watchdog.find_broken_limit(7201) == 7200
    add_step(file, 1)
    assert watchdog.find_broken_limit(7202) is None
    assert watchdog.find_broken_limit(7203 + MIN_DEFAULT_S) == MIN_DEFAULT_S


def test_there_is_no_deadline_after_the_last_step(file: Path) -> None:
    watchdog = Watchdog(file, Deadline(60, None, 2), now=0)
    add_step(file, 1)
    add_step(file, 2)
    assert watchdog.find_broken_limit(1) is None
    assert watchdog.find_broken_limit(1000) is None
