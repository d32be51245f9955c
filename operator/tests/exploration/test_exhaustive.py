"""Every state of a job within some bounds keeps the invariants, and settles from there."""

from __future__ import annotations

import pytest
from exploration.bounds import DEEP, Bounds
from exploration.fair_slots import RequestBounds
from exploration.lease_election import ElectionBounds
from exploration.simulation import simulation

BOUNDS = {
    "a disturbance": Bounds(disturbances=1, depth=6),
    "a fault": Bounds(faults=1, starts=("new",)),
    "two disturbances and a fault": Bounds(disturbances=2, faults=1, depth=2, starts=("running", "ended")),
    "an upgrade": Bounds(upgrades=1, depth=8, starts=("new",)),
    "a rollback and a disturbance": Bounds(disturbances=1, upgrades=1, newer=True, depth=3, starts=("running",)),
    "a job on which the operator fails": Bounds(breakages=1, depth=4),
    "a rival and an upgrade": Bounds(rivals=1, upgrades=1, depth=8, starts=("new",)),
    "a lost rollout pod": Bounds(losses=1, depth=9, starts=("starting", "running")),
    "a lost rollout pod below minReplicas": Bounds(losses=1, has_minimum=True, depth=9, starts=("starting", "running")),
    "numbers of rollout pods": Bounds(scalings=2, depth=9, starts=("running",)),
    "a number of rollout pods, and a fault": Bounds(scalings=1, faults=1, depth=6, starts=("running",)),
    "failures in place": Bounds(failures=3, starts=("running",)),
    "a deleted worker": Bounds(deletions=1, starts=("running",)),
    "a failure in place and a disturbance": Bounds(failures=1, disturbances=1, depth=4, starts=("running",)),
    "a failure in place and a fault": Bounds(failures=1, faults=1, depth=9, starts=("running",)),
}
DEEP_BOUNDS = {
    "a disturbance": Bounds(disturbances=1, depth=26, starts=("new",)),
    "two disturbances": Bounds(disturbances=2, depth=6),
    "a disturbance and a fault": Bounds(disturbances=1, faults=1, depth=5),
    "two disturbances and a fault": Bounds(disturbances=2, faults=1, depth=3),
    "an upgrade": Bounds(upgrades=1, starts=("new",)),
    "an upgrade, a rollback and a fault": Bounds(faults=1, upgrades=2, depth=5),
    "a rollback and a disturbance": Bounds(disturbances=1, upgrades=1, newer=True, depth=5),
    "a job on which the operator fails": Bounds(breakages=2, depth=10),
    "rivals and a disturbance": Bounds(rivals=2, disturbances=1, depth=6, starts=("new", "starting")),
    "lost rollout pods and a disturbance": Bounds(losses=2, disturbances=1, depth=6, starts=("starting", "running")),
    "a lost rollout pod and a fault": Bounds(losses=1, faults=1, depth=8, starts=("running",)),
    "lost rollout pods below minReplicas, and a fault": Bounds(
        losses=2, has_minimum=True, faults=1, depth=8, starts=("running",)
    ),
    "numbers of rollout pods": Bounds(scalings=4, depth=24, starts=("starting", "running")),
    "numbers of rollout pods, and a loss": Bounds(scalings=2, losses=1, depth=9, starts=("running",)),
    "a number of rollout pods, and a fault": Bounds(scalings=1, faults=1, depth=9, starts=("running",)),
    "a number of rollout pods, and a disturbance": Bounds(scalings=1, disturbances=1, depth=6, starts=("running",)),
    "failures in place": Bounds(failures=5, starts=("running",)),
    "deleted workers, and a failure": Bounds(deletions=2, failures=1, starts=("running",)),
    "a deleted worker, and a fault": Bounds(deletions=1, faults=1, depth=12, starts=("running",)),
    "failures in place and a disturbance": Bounds(failures=2, disturbances=1, depth=8, starts=("running",)),
    "failures in place and a fault": Bounds(failures=2, faults=1, depth=16, starts=("running",)),
    "a failure in place, a fault and a disturbance": Bounds(
        failures=1, faults=1, disturbances=1, depth=5, starts=("running",)
    ),
    "a rival, a fault and an upgrade": Bounds(rivals=1, faults=1, upgrades=1, depth=6, starts=("new",)),
    "a job on which the operator fails, and a fault": Bounds(breakages=1, faults=1, disturbances=1, depth=3),
}


@pytest.mark.parametrize("name", DEEP_BOUNDS if DEEP else BOUNDS)
def test_every_state_keeps_the_invariants_and_settles(name: str) -> None:
    with simulation():
        search = (DEEP_BOUNDS if DEEP else BOUNDS)[name].explore()
    print(f"{name}: {len(search.found)} states, {search.transitions} transitions")
    assert len(search.found) > 200


def test_every_order_of_requests_is_fair_and_loses_no_slot() -> None:
    bounds = RequestBounds(depth=12, requests=9) if DEEP else RequestBounds(depth=4)
    states = bounds.explore()
    print(f"requests: {states} states")
    assert states > 300


def test_no_two_processes_act_on_one_namespace_in_any_order_of_requests() -> None:
    """Also with different numbers of shards, and with writes that arrive late."""
    states = ElectionBounds(depth=11 if DEEP else 7).explore()
    print(f"leases: {states} states")
    assert states > 1000
