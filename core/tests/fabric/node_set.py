"""One node set of the golden matrix, and the demands that many of them share."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric.node_builders import (
    Manifest,
)

from rlt_core.fabric.demand import Demand

NVIDIA = Demand("nvidia.com/gpu", 8, 2)
AMD = Demand("amd.com/gpu", 8, 2)
ON_CPU = Demand(workers=2)
RDMA_ONLY = Demand("nvidia.com/gpu", 8, 2, require="rdma")


@dataclass(frozen=True)
class Case:
    """One node set and demand, with the expected decision, independent of the golden file."""

    nodes: list[Manifest]
    demand: Demand
    profile: str
    fabric: str
    rejected: str | None = None
    agree: bool = True
    warns: tuple[str, ...] = field(default=())
