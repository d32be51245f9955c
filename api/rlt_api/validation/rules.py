"""Validation rules over several fields of a spec, by topic. Each finding names field, value and fix.

The CRD contains some of them as CEL (`cel` in the blocks): those that CEL can evaluate on the values in the manifest.
A rule here rejects everything that CEL rejects. `rlt explain` prints the docstring of a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.command import devices as command_devices
from rlt_api.frameworks.command import launchers, shell_words
from rlt_api.frameworks.command import rules as commands
from rlt_api.frameworks.openrlhf import batches as openrlhf_batches
from rlt_api.frameworks.openrlhf import rules as openrlhf
from rlt_api.frameworks.roll import batches as roll_batches
from rlt_api.frameworks.roll import rules as roll
from rlt_api.frameworks.verl import arguments as verl_arguments
from rlt_api.frameworks.verl import batches as verl_batches
from rlt_api.frameworks.verl import cpus as verl_cpus
from rlt_api.frameworks.verl import field_job, override_keys
from rlt_api.frameworks.verl import rules as verl
from rlt_api.rules import (
    accelerators,
    adapters,
    attachment,
    batches,
    choices,
    engine_kwargs,
    engine_memory,
    environment,
    experts,
    images,
    layout,
    learning,
    lengths,
    liger,
    locations,
    memory,
    model_families,
    names,
    operations,
    optimizers,
    pods,
    preferences,
    quantization,
    queues,
    rewards,
    security,
    services,
    shared_memory,
    storage,
    truncated_sampling,
    vision,
)
from rlt_api.rules.limits import validate_limits
from rlt_api.rules.metadata import validate_job_name
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec
from rlt_api.validation import template_shape

Rule = Callable[[RLTrainingJobSpec], Iterator[Finding]]

TRAINER_RULES: list[Rule] = [
    *batches.RULES,
    *layout.RULES,
    *adapters.RULES,
    *experts.RULES,
    *optimizers.RULES,
    *learning.RULES,
    *engine_kwargs.RULES,
    *lengths.RULES,
    *liger.RULES,
    *locations.RULES,
    *engine_memory.RULES,
    *memory.RULES,
    *model_families.RULES,
    *names.RULES,
    *preferences.RULES,
    *quantization.RULES,
    *rewards.RULES,
    *services.RULES,
    *truncated_sampling.RULES,
    *vision.RULES,
]
"""Rules for the fields that a command does not use."""
RULES: list[Rule] = [
    *choices.RULES,
    *commands.RULES,
    *shell_words.RULES,
    *launchers.RULES,
    *attachment.RULES,
    *command_devices.RULES,
    *images.RULES,
    *accelerators.RULES,
    *pods.RULES,
    *template_shape.RULES,
    *shared_memory.RULES,
    *storage.RULES,
    *environment.RULES,
    *operations.RULES,
    *queues.RULES,
    *security.RULES,
    *verl.RULES,
    *verl_batches.RULES,
    *override_keys.RULES,
    *verl_arguments.RULES,
    *field_job.RULES,
    *verl_cpus.RULES,
    *openrlhf.RULES,
    *openrlhf_batches.RULES,
    *roll.RULES,
    *roll_batches.RULES,
]
"""Rules for all other fields."""


def validate_job_spec(name: str, spec: RLTrainingJobSpec) -> list[Finding]:
    """Validate the name and the spec of a job."""
    return [*validate_job_name(name), *storage.validate_resume_from_other_job(name, spec), *validate_spec(spec)]


def validate_spec(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Validate a spec."""
    rules = [*RULES, *(TRAINER_RULES if spec.framework.type != "command" else [])]
    yield from (finding for rule in rules for finding in rule(spec))


def validate_runtime_spec(runtime: RLRuntimeSpec) -> Iterator[Finding]:
    """Validate a runtime's own fields. Its defaults are validated as part of a job's spec."""
    yield from validate_limits(runtime)
    for index, pool in enumerate(runtime.node_pools):
        field = f"spec.nodePools[{index}]"
        yield from pods.validate_resources(pool.resources, f"{field}.resources")
        yield from pods.validate_node_selector(pool.node_selector, f"{field}.nodeSelector")
        yield from pods.validate_tolerations(pool.tolerations, f"{field}.tolerations")
