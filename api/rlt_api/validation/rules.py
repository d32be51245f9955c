"""Validation rules over several fields of a spec, by topic. Each finding names field, value and fix.

The CRD contains some of them as CEL (`cel` in the blocks): those that CEL can evaluate on the values in the manifest.
A rule here rejects everything that CEL rejects. `rlt explain` prints the docstring of a rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.frameworks import elastic_rules, framework_rules
from rlt_api.frameworks.command import launchers, shell_words
from rlt_api.frameworks.command import rules as commands
from rlt_api.frameworks.framework_type import Rule
from rlt_api.frameworks.registry import FRAMEWORKS, get_framework
from rlt_api.rules import (
    accelerators,
    attachment,
    batches,
    bucket,
    choices,
    environment,
    evaluate_only,
    evaluation,
    experts,
    fault_tolerance,
    images,
    layout,
    learning,
    liger,
    memory,
    objects,
    operations,
    optimizers,
    pods,
    publish,
    queues,
    router_replay,
    security,
    shared_memory,
    storage,
)
from rlt_api.rules.limits import validate_limits
from rlt_api.rules.metadata import validate_job_name
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.spec.worker_groups import trains
from rlt_api.validation import template_shape
from rlt_api.validation.set_aside import until_unreadable

RULES: list[Rule] = [
    *framework_rules.RULES,
    *elastic_rules.RULES,
    *choices.RULES,
    *evaluation.RULES,
    *evaluate_only.RULES,
    *publish.RULES,
    *commands.RULES,
    *shell_words.RULES,
    *launchers.RULES,
    *attachment.RULES,
    *images.RULES,
    *accelerators.RULES,
    *pods.RULES,
    *template_shape.RULES,
    *shared_memory.RULES,
    *storage.RULES,
    *bucket.RULES,
    *objects.RULES,
    *environment.RULES,
    *fault_tolerance.RULES,
    *operations.RULES,
    *queues.RULES,
    *security.RULES,
]
"""The rules of all jobs."""
TRAINING_RULES: frozenset[Rule] = frozenset(
    (
        *batches.RULES,
        *batches.BUILTIN_RULES,
        *experts.RULES,
        *experts.BUILTIN_RULES,
        *layout.TRAINING_RULES,
        *learning.RULES,
        *learning.BUILTIN_RULES,
        *liger.RULES,
        *memory.TRAINING_RULES,
        *optimizers.RULES,
        *router_replay.RULES,
        storage.validate_checkpoint_volume,
        storage.validate_keep_best,
        storage.validate_keep_best_steps,
    )
)
"""The rules about what spec.evaluateOnly ignores: train workers, their batches and memory, and checkpoints."""


def list_all_rules() -> list[Rule]:
    """List each rule once: the rules of the frameworks, and the rules of all jobs."""
    own = [rule for framework in FRAMEWORKS.values() for rule in framework.rules]
    return list(dict.fromkeys([*own, *RULES]))


def validate_job_spec(name: str, spec: RLTrainingJobSpec) -> list[Finding]:
    """Validate the name and the spec of a job."""
    resumed = until_unreadable(storage.validate_resume_from_other_job, name, spec)
    return [*validate_job_name(name), *resumed, *validate_spec(spec)]


def validate_spec(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Validate a spec. A rule that reads a hidden field ends there."""
    for rule in (*RULES, *get_framework(spec).rules):
        yield from until_unreadable(_apply, rule, spec)


def _apply(rule: Rule, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    if rule not in TRAINING_RULES or trains(spec):
        yield from rule(spec)


def validate_runtime_spec(runtime: RLRuntimeSpec) -> Iterator[Finding]:
    """Validate a runtime's own fields. Its defaults are validated as part of a job's spec."""
    yield from validate_limits(runtime)
    for index, pool in enumerate(runtime.node_pools):
        field = f"spec.nodePools[{index}]"
        yield from pods.validate_resources(pool.resources, f"{field}.resources")
        yield from pods.validate_node_selector(pool.node_selector, f"{field}.nodeSelector")
        yield from pods.validate_tolerations(pool.tolerations, f"{field}.tolerations")
