"""Optimizers: what the trainer supports with moments of 8 bits."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.spec.job_spec import RLTrainingJobSpec

OPTIMIZER = "spec.training.optimizer"


def validate_8bit_moments(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """adamw_8bit cannot be combined with moments in CPU memory and with expert parallelism."""
    training = spec.training
    critic = spec.algorithm.critic
    if training.optimizer != "adamw_8bit":
        return
    for field, is_set in {
        "spec.training.fsdp.optimizerOffload": bool(training.fsdp and training.fsdp.optimizer_offload),
        "spec.algorithm.critic.optimizerOffload": bool(critic and critic.optimizer_offload),
        "spec.training.expertParallelSize": training.expert_parallel_size > 1,
    }.items():
        if is_set:
            message = f"cannot be combined with {field.removeprefix('spec.')}"
            fix = f"use adamw, or remove {field.rpartition('.')[2]}"
            edits = ({field: None}, {OPTIMIZER: "adamw"})
            value = training.optimizer
            yield Finding(OPTIMIZER, value, message, fix, rule="8bit-moments", involved=(field,), edits=edits)


RULES = (validate_8bit_moments,)
