"""The memory of the head, where the driver keeps large values of a step's tokens."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.model import quantity_value
from rlt_api.rules.memory_parts import GIB
from rlt_api.spec.job_spec import RLTrainingJobSpec

HEAD_RESOURCES = "spec.cluster.head.resources"
HEAD_MEMORY = f"{HEAD_RESOURCES}.memory"


def require_head_memory(
    spec: RLTrainingJobSpec, needed: float, what: str, *, lower: str, involved: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield a finding if head.resources.memory is below the `needed` bytes for `what`. `lower`: another fix."""
    resources = spec.cluster.head.resources
    memory = resources.memory
    if needed <= quantity_value(memory):
        return
    message = f"the driver needs {needed / GIB:.3g} GiB for {what}"
    minimum = f"{int(needed / GIB) + 1}Gi"
    fix = f"use {minimum} or more with cpu: {resources.cpu}, or {lower}"
    sizes = ("spec.training.trainBatchSize", "spec.rollout.responsesPerPrompt", "spec.data.maxResponseLength")
    edits = ({HEAD_MEMORY: minimum, f"{HEAD_RESOURCES}.cpu": resources.cpu},)  # a job gives both or neither
    yield Finding(HEAD_MEMORY, memory, message, fix, rule="head-memory", involved=(*involved, *sizes), edits=edits)
