"""What a spec must fulfil beyond its types: rules over several fields, by theme. Each says field, value and remedy.

The CRD has some of them as CEL (`cel` in the blocks): those that CEL can decide on the values that a manifest gives
itself. Whatever that refuses, a rule here refuses too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlt_api.finding import Finding
from rlt_api.rules import (
    batches,
    choices,
    environment,
    layout,
    learning,
    lengths,
    memory,
    operations,
    pods,
    queues,
    shared_memory,
    storage,
)
from rlt_api.rules.layout import ranks
from rlt_api.rules.limits import limits, limits_make_sense
from rlt_api.rules.metadata import job_name
from rlt_api.runtime import RLRuntimeSpec
from rlt_api.spec import RLTrainingJobSpec

__all__ = ["RULES", "findings", "limits", "ranks", "runtime_findings", "spec_findings"]

Rule = Callable[[RLTrainingJobSpec], Iterator[Finding]]

BUILTIN: list[Rule] = [*batches.RULES, *layout.RULES, *learning.RULES, *lengths.RULES, *memory.RULES]
"""Rules over what only rlt's own trainer reads."""
RULES: list[Rule] = [
    *choices.RULES,
    *pods.RULES,
    *shared_memory.RULES,
    *storage.RULES,
    *environment.RULES,
    *operations.RULES,
    *queues.RULES,
]
"""Rules over everything else."""


def findings(name: str, spec: RLTrainingJobSpec) -> list[Finding]:
    """Everything wrong with the spec of the job called `name`; empty if nothing is."""
    return [*job_name(name), *spec_findings(spec)]


def spec_findings(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Everything wrong with a spec."""
    rules = [*RULES, *(BUILTIN if spec.framework.type == "builtin" else [])]
    yield from (finding for rule in rules for finding in rule(spec))


def runtime_findings(runtime: RLRuntimeSpec) -> Iterator[Finding]:
    """Everything wrong with a runtime's own fields; its defaults are a part of a job's spec."""
    yield from limits_make_sense(runtime)
    for index, pool in enumerate(runtime.node_pools):
        field = f"spec.nodePools[{index}]"
        yield from pods.resources_make_sense(pool.resources, f"{field}.resources")
        yield from pods.selector_makes_sense(pool.node_selector, f"{field}.nodeSelector")
        yield from pods.tolerations_make_sense(pool.tolerations, f"{field}.tolerations")
