"""Every state of a job within some bounds keeps the invariants, and settles from there."""

from __future__ import annotations

import pytest
from exploration.bounds import DEEP, Bounds
from exploration.simulation import simulation

BOUNDS = {
    "a disturbance": Bounds(disturbances=1, depth=6),
    "a fault": Bounds(faults=1, starts=("new",)),
    "two disturbances and a fault": Bounds(disturbances=2, faults=1, depth=2, starts=("running", "ended")),
}
DEEP_BOUNDS = {
    "a disturbance": Bounds(disturbances=1, depth=26, starts=("new",)),
    "two disturbances": Bounds(disturbances=2, depth=6),
    "a disturbance and a fault": Bounds(disturbances=1, faults=1, depth=5),
    "two disturbances and a fault": Bounds(disturbances=2, faults=1, depth=3),
}


@pytest.mark.parametrize("name", DEEP_BOUNDS if DEEP else BOUNDS)
def test_every_state_keeps_the_invariants_and_settles(name: str) -> None:
    with simulation():
        search = (DEEP_BOUNDS if DEEP else BOUNDS)[name].explore()
    print(f"{name}: {len(search.found)} states, {search.transitions} transitions")
    assert len(search.found) > 500
