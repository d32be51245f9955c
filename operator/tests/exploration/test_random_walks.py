"""Long random walks keep the invariants, and the job settles at their end."""

from __future__ import annotations

from exploration.bounds import DEEP
from exploration.machine import JobMachine
from exploration.simulation import simulation
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

SETTINGS = settings(
    max_examples=5000 if DEEP else 50,
    stateful_step_count=80 if DEEP else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_random_walks_keep_the_invariants_and_settle() -> None:
    with simulation():
        run_state_machine_as_test(JobMachine, settings=SETTINGS)
