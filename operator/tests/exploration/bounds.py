"""The bounds of the search, and where it starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from exploration.environment import build_world
from exploration.search import Search, advance_until
from exploration.world import World

DEEP = os.environ.get("RLT_EXPLORE") == "deep"
"""Set by `make explore`: wider bounds than in the unit tests."""

STARTS: dict[str, Callable[[World], bool]] = {
    "new": lambda world: True,
    "starting": lambda world: bool(world.pods),
    "running": lambda world: world.status.phase == "Running",
    "ended": lambda world: world.status.phase == "Succeeded",
}
"""States of a job without disturbances, in their order."""


@dataclass(frozen=True)
class Bounds:
    """How far a search goes."""

    disturbances: int = 0
    """Number of disturbances on a path."""
    faults: int = 0
    """Number of faults on a path: a crash, a lost response, lost watch events, a change during a reconciliation."""
    breakages: int = 0
    """Number of changes of the job on a path on which the operator fails."""
    rivals: int = 0
    """Number of times on a path that another job takes the accelerators, which the job's runtime limits."""
    losses: int = 0
    """Number of times on a path that the job loses its rollout pod."""
    has_minimum: bool = False
    """Whether the group of the rollout pod has minReplicas."""
    scalings: int = 0
    """Number of times on a path that the user changes the number of rollout pods."""
    failures: int = 0
    """Number of times on a path that a program fails, of a job with restartPolicy InPlace."""
    deletions: int = 0
    """Number of times on a path that a worker of such a job is deleted."""
    upgrades: int = 0
    """Number of times that a replica of another version leads on a path."""
    newer: bool = False
    """Whether the newer version leads from the start."""
    depth: int = 10**9
    """Number of transitions on a path."""
    starts: tuple[str, ...] = tuple(STARTS)

    def explore(self) -> Search:
        """Explore all paths. Raises Violation."""
        search = Search(max_depth=self.depth)
        search.run(*(advance_until(self._build_world(), STARTS[start]) for start in self.starts))
        return search

    def _build_world(self) -> World:
        world = build_world(
            disturbances=self.disturbances,
            faults=self.faults,
            breakages=self.breakages,
            upgrades=self.upgrades,
            rivals=self.rivals,
            losses=self.losses,
            has_minimum=self.has_minimum,
            scalings=self.scalings,
            failures=self.failures,
            deletions=self.deletions,
        )
        world.process.newer = self.newer
        return world
