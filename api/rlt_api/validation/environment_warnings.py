"""Warnings about variables in spec.cluster.env that have no effect or slow down the job, and about the debugger."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.rules.environment import ENV
from rlt_api.spec.job_spec import RLTrainingJobSpec

MIN_RAY_WITH_DEBUGGER = (2, 39, 0)
"""The first Ray whose default is the distributed debugger (Ray's docs, "Using the Ray Debugger")."""


def warn_environment(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about spec.cluster.env."""
    for index, variable in enumerate(spec.cluster.env):
        field = f"{ENV}[{index}]"
        if variable.name == "NCCL_DEBUG" and (variable.value or "").upper() == "TRACE":
            yield (
                f"{field}.value: {variable.value}: prints every call of NCCL in every process, which slows down the "
                "training; use INFO, with NCCL_DEBUG_SUBSYS for the parts of interest"
            )


def warn_old_debugger(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Ray's distributed debugger with an early Ray."""
    version = spec.cluster.ray_version
    if spec.observability.debugger != "ray" or version is None:
        return
    if tuple(map(int, version.split("."))) < MIN_RAY_WITH_DEBUGGER:
        first = ".".join(map(str, MIN_RAY_WITH_DEBUGGER))
        yield (
            f"spec.observability.debugger: ray: spec.cluster.rayVersion is {version}, and the distributed debugger is "
            f"Ray's default from {first} on; use legacy, or an image with a later Ray"
        )
