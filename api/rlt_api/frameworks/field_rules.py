"""The rules of all frameworks that read the fields of the training: every type but command."""

from __future__ import annotations

from rlt_api.frameworks.framework_type import Rule
from rlt_api.rules import (
    batches,
    engine_kwargs,
    engine_memory,
    experts,
    layout,
    learning,
    lengths,
    locations,
    memory,
    names,
    operations,
    optimizers,
    pods,
    rewards,
    services,
    speculation,
    vision,
)

FIELD_RULES: tuple[Rule, ...] = (
    operations.validate_preflight_command,
    pods.validate_group_count,
    *batches.RULES,
    *layout.RULES,
    *experts.RULES,
    *optimizers.RULES,
    *learning.RULES,
    *engine_kwargs.RULES,
    *lengths.RULES,
    *locations.RULES,
    *engine_memory.RULES,
    *memory.RULES,
    *names.RULES,
    *rewards.RULES,
    *services.RULES,
    *speculation.RULES,
    *vision.RULES,
)
