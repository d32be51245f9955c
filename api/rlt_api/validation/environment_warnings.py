"""Warnings about variables in spec.cluster.env that have no effect or slow down the job, and about the debugger."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.spelling import find_nearest_word
from rlt_api.rules.environment import ENV, known_names
from rlt_api.spec.job_spec import RLTrainingJobSpec

REPLACED = {"VLLM_ATTENTION_BACKEND": "set spec.rollout.engineKwargs.attention_backend"}
"""Variables of earlier versions of vLLM -> what replaces them."""
MIN_RAY_WITH_DEBUGGER = (2, 39, 0)
"""The first Ray whose default is the distributed debugger (Ray's docs, "Using the Ray Debugger")."""


def warn_environment(spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about spec.cluster.env. The vLLM of a command is unknown."""
    for index, variable in enumerate(spec.cluster.env):
        field = f"{ENV}[{index}]"
        if spec.framework.type == "builtin" and variable.name.startswith("VLLM_"):
            yield from _warn_unknown_vllm(f"{field}.name", variable.name)
        if variable.name == "NCCL_DEBUG" and (variable.value or "").upper() == "TRACE":
            yield (
                f"{field}.value: {variable.value}: prints every call of NCCL in every process, which slows down the "
                "training; use INFO, with NCCL_DEBUG_SUBSYS for the parts of interest"
            )


def _warn_unknown_vllm(field: str, name: str) -> Iterator[str]:
    """A variable that the vLLM of the trainer's images does not read (known_environment.txt)."""
    if name in known_names():
        return
    vllm = sorted(each for each in known_names() if each.startswith("VLLM_"))
    nearest = find_nearest_word(name, vllm, max_distance=len(name) // 5)
    fix = REPLACED.get(name) or (f"did you mean {nearest}?" if nearest else "remove it")
    yield f"{field}: {name}: vLLM 0.32.0 does not have this variable; {fix}"


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
