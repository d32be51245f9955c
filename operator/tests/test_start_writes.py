"""The writes from a new job to a running one, by the real reconciliation on the API server of the exploration."""

from __future__ import annotations

from collections import Counter

from exploration.environment import build_world
from exploration.search import advance
from exploration.simulation import simulation


def test_a_job_takes_three_status_writes_and_five_objects_until_it_runs() -> None:
    """Acceptance, before anything is created from it; the head, before it gets the program; and the start."""
    writes: list[str] = []
    with simulation():
        world = build_world()
        while world.status.phase != "Running":
            step = advance(world)
            world = step.after
            writes += [f"{method} {path.split('/')[-1]}" for method, path in step.writes or ()]
    found = Counter(writes)
    assert found["PATCH status"] == 3
    assert found - Counter({"PATCH status": 3}) == Counter(
        {"POST configmaps": 2, "POST secrets": 1, "POST rayclusters": 1, "POST poddisruptionbudgets": 1, "POST ": 1}
    )
    assert writes[0] == "PATCH status"
    assert writes.index("POST ") == len(writes) - 3, "the program is submitted after the second status write"
