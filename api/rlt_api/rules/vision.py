"""Prompts with images: what the trainer supports with them."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import conflict, effect_only_with, replaceable
from rlt_api.spec.job_spec import RLTrainingJobSpec

IMAGE_KEY = "spec.data.imageKey"
RULE = "prompt-images"
WHOLE = ("filter", "error")
"""The values of overlongPrompts that do not truncate."""


def validate_prompt_images(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The builtin trainer takes imageKey with a model in a folder or on the hub, and with whole prompts. It does not
    take it with context parallelism, adapters, compiled layers, a critic, a teacher, conversations and recorded
    steps."""
    data = spec.data
    model = spec.model
    if data is None or data.image_key is None or model is None:
        return
    value = data.overlong_prompts
    if value not in WHOLE:
        message = "cannot be combined with data.imageKey"
        field = "spec.data.overlongPrompts"
        yield replaceable(field, value, message, *WHOLE, or_set={IMAGE_KEY: None}, rule=RULE)
    for field, is_given in {
        "spec.model.fromSeed": model.from_seed is not None,
        "spec.model.lora": model.lora is not None,
        "spec.training.contextParallelSize": spec.training.context_parallel_size > 1,
        "spec.training.useTorchCompile": spec.training.use_torch_compile,
        "spec.algorithm.critic": spec.algorithm.critic is not None,
        "spec.algorithm.distillation": spec.algorithm.distillation is not None,
        "spec.rollout.multiTurn": spec.rollout.multi_turn is not None,
        "spec.observability.recordSteps": bool(spec.observability.record_steps),
    }.items():
        if is_given:
            yield conflict(field, "given", IMAGE_KEY, rule=RULE)


def validate_frozen_vision_tower(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """freezeVisionTower is only for prompts with images."""
    if spec.model and spec.model.freeze_vision_tower and spec.data and spec.data.image_key is None:
        field = "spec.model.freezeVisionTower"
        other = "data.imageKey"
        instead = "add imageKey"
        yield effect_only_with(field, other, value=True, instead=instead, rule=RULE, involved=(IMAGE_KEY,))


RULES = (validate_frozen_vision_tower,)
BUILTIN_RULES = (validate_prompt_images,)
