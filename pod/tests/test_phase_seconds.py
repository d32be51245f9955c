"""The division of steps by phase, and what is at risk since the latest checkpoint."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt_pod.report.phase_seconds import Devices, PhaseSeconds, add, build_phases, divide_step, save

STEP = {
    "timing_s/gen": 50.0,
    "timing_s/old_log_prob": 5.0,
    "timing_s/update_actor": 25.0,
    "timing_s/update_weights": 4.0,
    "timing_s/testing": 6.0,
    "timing_s/save_checkpoint": 8.0,
    "timing_s/step": 100.0,
}


def test_colocated_accelerators_are_idle_outside_of_the_phases() -> None:
    found = divide_step(STEP, 102.0, Devices(train=8))
    assert found == {"generate": 50, "update": 30, "sync": 4, "evaluate": 6, "idle": 12}


def test_separate_groups_wait_for_each_other() -> None:
    found = divide_step(STEP, 100.0, Devices(train=8, rollout=8))
    assert found == {"generate": 25, "update": 15, "sync": 4, "evaluate": 3, "idle": 53}


def test_a_generation_beside_the_training_counts_for_its_group() -> None:
    asynchronous = {**STEP, "timing_s/gen": 10.0, "overlap_s/gen": 60.0}
    found = divide_step(asynchronous, 100.0, Devices(train=12, rollout=4))
    assert found == {"generate": 17.5, "update": 22.5, "sync": 4, "evaluate": 1.5, "idle": 54.5}


def test_an_evaluation_beside_the_training_counts_for_its_group() -> None:
    beside = {**STEP, "timing_s/testing": 2.0, "overlap_s/testing": 14.0}
    found = divide_step(beside, 100.0, Devices(train=8, rollout=8))
    assert found == {"generate": 25, "update": 15, "sync": 4, "evaluate": 8, "idle": 48}


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*STEP, "overlap_s/gen", "overlap_s/testing", "timing_s/ref"]),
        st.integers(-1, 10**6).map(lambda each: each / 7) | st.just(math.nan),
    ),
    st.integers(0, 10**6).map(lambda each: each / 3),
    st.integers(1, 64),
    st.integers(0, 64),
)
def test_the_parts_of_any_metrics_add_up(metrics: dict[str, float], seconds: float, train: int, rollout: int) -> None:
    parts = divide_step(metrics, seconds, Devices(train, rollout))
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(seconds, rel=1e-9, abs=1e-9)


def run(*steps: int) -> PhaseSeconds:
    """Steps of ten seconds each."""
    spent = PhaseSeconds()
    for step in steps:
        spent = add(spent, {"update": 10.0}, step)
    return spent


@pytest.mark.parametrize(("saved", "uncommitted"), [(1, 30), (3, 10), (4, 0), (9, 0)])
def test_the_steps_after_the_latest_checkpoint_are_at_risk(saved: int, uncommitted: float) -> None:
    assert build_phases(save(run(1, 2, 3, 4), saved)) == {"update": 40, "uncommitted": uncommitted}


def test_a_run_without_a_checkpoint_is_at_risk_as_a_whole() -> None:
    assert build_phases(run(1, 2))["uncommitted"] == 20
    assert build_phases(save(run(21, 22), 20))["uncommitted"] == 20, "it has resumed from step 20"


def test_a_checkpoint_that_is_complete_before_its_step_is_reported_counts_the_step() -> None:
    spent = add(save(run(1), 2), {"update": 10.0}, 2)
    assert build_phases(spent)["uncommitted"] == 0
    assert build_phases(add(spent, {"update": 10.0}, 3))["uncommitted"] == 10


def test_the_supervised_steps_are_saved_by_the_checkpoint_of_step_0() -> None:
    spent = save(add(PhaseSeconds(), {"update": 60.0}), 0)
    assert build_phases(add(spent, {"idle": 5.0})) == {"update": 60, "idle": 5, "uncommitted": 5}
