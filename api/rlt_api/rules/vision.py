"""Prompts with images: what the trainer supports with them."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.factors import join_or
from rlt_api.findings.finding import Finding, remove, use
from rlt_api.spec.job_spec import RLTrainingJobSpec

IMAGE_KEY = "spec.data.imageKey"
RULE, MESSAGE = "prompt-images", "cannot be combined with data.imageKey"
WHOLE = ("filter", "error")
"""The values of overlongPrompts that do not truncate."""


def validate_prompt_images(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The builtin trainer takes imageKey with a model in a folder or on the hub, and with whole prompts. It does not
    take it with context parallelism, adapters, compiled layers, a critic, a teacher, conversations and recorded
    steps."""
    data, model, training, algorithm = spec.data, spec.model, spec.training, spec.algorithm
    if spec.framework.type != "builtin" or data is None or data.image_key is None or model is None:
        return
    field, value = "spec.data.overlongPrompts", data.overlong_prompts
    if value not in WHOLE:
        edits = (*use(field, *WHOLE), *remove(IMAGE_KEY))
        yield Finding(field, value, MESSAGE, f"use {join_or(WHOLE)}, or remove imageKey", RULE, (IMAGE_KEY,), edits)
    for field, is_set in {
        "spec.model.fromSeed": model.from_seed is not None,
        "spec.model.lora": model.lora is not None,
        "spec.training.contextParallelSize": training.context_parallel_size > 1,
        "spec.training.useTorchCompile": training.use_torch_compile,
        "spec.algorithm.critic": algorithm.critic is not None,
        "spec.algorithm.distillation": algorithm.distillation is not None,
        "spec.rollout.multiTurn": spec.rollout.multi_turn is not None,
        "spec.observability.recordSteps": bool(spec.observability.record_steps),
    }.items():
        if is_set:
            edits = remove(field, IMAGE_KEY)
            yield Finding(field, "given", MESSAGE, "remove one of them", RULE, (IMAGE_KEY,), edits)


def validate_frozen_vision_tower(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """freezeVisionTower is only for prompts with images."""
    field, data, model = "spec.model.freezeVisionTower", spec.data, spec.model
    if model and model.freeze_vision_tower and data and data.image_key is None:
        message = "has an effect only with data.imageKey"
        yield Finding(field, "true", message, "remove it, or add imageKey", RULE, (IMAGE_KEY,), remove(field))


RULES = (validate_prompt_images, validate_frozen_vision_tower)
