"""Combinations of framework, model, data, rewards and image."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.factors import join_or, nearest_divisors, nearest_multiples
from rlt_api.findings.finding import Finding, keep_one, remove, use
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import TRAINING_BLOCKS
from rlt_api.spec.worker_groups import has_engines

TYPE = "spec.framework.type"
OPTIONS = {
    "command": ("command",),
    "workingDirectory": ("command", "roll"),
    "totalSteps": ("command",),
    "runtimeEnv": ("command",),
    "version": ("verl",),
    "overrides": ("verl", "openrlhf", "roll"),
}
"""Field of spec.framework -> the types that use it."""
SOURCES = ("preset", "files", "hub", "inline")


def validate_framework(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Type command needs framework.command; the others need model, data and the number of steps or epochs. Fields of
    another type are not allowed."""
    framework, rule = spec.framework, "framework"
    for field in framework.model_dump(exclude_defaults=True, by_alias=True):
        if unused := report_unused_option(field, framework.type):
            yield unused
    if framework.type == "command":
        if not framework.command:
            given = "none" if framework.command is None else "[]"
            fix = "add the program and its arguments"
            yield Finding("spec.framework.command", given, "is required by type command", fix, rule, (TYPE,))
        for field in TRAINING_BLOCKS:
            if field in spec.model_fields_set:
                message, edits = "is not used by type command", remove(f"spec.{field}")
                yield Finding(f"spec.{field}", "given", message, "remove it", rule, (TYPE,), edits)
        return
    for field in ("model", "data"):
        if getattr(spec, field) is None:
            yield Finding(
                f"spec.{field}", "none", f"is required by framework {framework.type}", f"add spec.{field}", rule
            )
    if spec.training.total_steps is None and spec.training.total_epochs is None:
        message = f"is required by framework {framework.type}"
        fix, involved = "add the number of steps, or totalEpochs", ("spec.training.totalEpochs",)
        yield Finding("spec.training.totalSteps", "none", message, fix, rule, involved)


def report_unused_option(field: str, framework: str) -> Finding | None:
    """Build the finding for a field of spec.framework that this type does not use; None if the type uses it."""
    types = OPTIONS.get(field, (framework,))
    if framework in types:
        return None
    path, fix = f"spec.framework.{field}", f"remove it, or use type: {types[0]}"
    return Finding(path, "given", f"is not used by type {framework}", fix, "framework", edits=remove(path))


def validate_model_source(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Exactly one of path and fromSeed must be given; revision is only for models on the Hugging Face hub."""
    model = spec.model
    if model is None:
        return
    if (model.path is None) == (model.from_seed is None):
        given = "none" if model.path is None else "both"
        message, involved = "must have exactly one of path and fromSeed", ("spec.model.path", "spec.model.fromSeed")
        fix = "keep one of them" if model.path else "add one of them"
        yield Finding(
            "spec.model", given, message, fix, "model-source", involved, remove(*involved) if model.path else ()
        )
    if model.revision and (model.from_seed or (model.path or "").startswith("/")):
        message = "is only for models on the Hugging Face hub"
        fix = "remove it, or set path to the name of a model on the hub"
        field = "spec.model.revision"
        yield Finding(field, model.revision, message, fix, "model-source", ("spec.model.path",), remove(field))


def validate_seeded_model(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """hiddenSize must be an even multiple of numAttentionHeads (rotary embeddings rotate pairs of dimensions), and
    numKeyValueHeads must divide numAttentionHeads."""
    seeded = spec.model.from_seed if spec.model else None
    if seeded is None:
        return
    field, heads = "spec.model.fromSeed", seeded.num_attention_heads
    if seeded.hidden_size % (2 * heads):
        sizes = nearest_multiples(seeded.hidden_size, 2 * heads)
        message, path = f"is not an even multiple of numAttentionHeads {heads}", f"{field}.hiddenSize"
        involved, edits = (f"{field}.numAttentionHeads",), use(path, *sizes)
        yield Finding(path, str(seeded.hidden_size), message, f"use {join_or(sizes)}", "heads", involved, edits)
    if heads % seeded.num_key_value_heads:
        sizes, path = nearest_divisors(seeded.num_key_value_heads, heads), f"{field}.numKeyValueHeads"
        involved, edits = (f"{field}.numAttentionHeads",), use(path, *sizes)
        message, value = f"does not divide numAttentionHeads {heads}", str(seeded.num_key_value_heads)
        yield Finding(path, value, message, f"use {join_or(sizes)}", "heads", involved, edits)


def validate_data_source(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Exactly one of preset, files, hub and inline must be given. path is for gsm8k and math, valFiles for files."""
    data = spec.data
    if data is None:
        return
    given = [name for name in SOURCES if getattr(data, name) is not None]
    if len(given) != 1:
        message = f"must have exactly one of {', '.join(SOURCES)}"
        involved = () if given else ("spec.data.preset",)
        fix = f"{'keep' if given else 'add'} one of them"
        edits = keep_one(*(f"spec.data.{each}" for each in given))
        yield Finding("spec.data", " and ".join(given) or "none", message, fix, "data-source", involved, edits)
    field, involved = "spec.data.path", (f"spec.data.{given[0]}",) if given else ("spec.data.preset",)
    if data.preset in ("gsm8k", "math") and data.path is None:
        message = f"is required by preset {data.preset}"
        yield Finding(field, "none", message, "add the folder with the files of the data set", "data-path", involved)
    if data.path is not None and data.preset not in ("gsm8k", "math"):
        source = f"preset {data.preset}" if data.preset else given[0] if given else "any source"
        yield Finding(field, data.path, f"is not used by {source}", "remove it", "data-path", involved, remove(field))
    if data.val_files is not None and data.files is None:
        message, fix = "has an effect only with files", "remove it, or add files"
        field = "spec.data.valFiles"
        yield Finding(field, "given", message, fix, "data-source", ("spec.data.files",), remove(field))


def validate_data_columns(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """promptKey, answerKey, imageKey and filters are only for files and hub."""
    data = spec.data
    if data is None or data.files is not None or data.hub is not None:
        return
    involved = ("spec.data.files", *(f"spec.data.{name}" for name in SOURCES if getattr(data, name) is not None))
    for name, given in (
        ("promptKey", data.prompt_key != "prompt"),
        ("answerKey", data.answer_key != "answer"),
        ("imageKey", data.image_key is not None),
        ("filters", bool(data.filters)),
    ):
        if given:
            message, fix = "has an effect only with files and hub", "remove it, or add files"
            field = f"spec.data.{name}"
            yield Finding(field, "given", message, fix, "data-source", involved[1:], remove(field))


def validate_validation_data(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """training.validation needs validation data: a preset, data.valFiles or data.hub.valSplit."""
    data, validation = spec.data, spec.training.validation
    if data is None or validation is None or not (validation.test_freq > 0 or validation.before_train):
        return
    if data.files is not None and not data.val_files:
        missing, source = "spec.data.valFiles", "files"
    elif data.hub is not None and data.hub.val_split is None:
        missing, source = "spec.data.hub.valSplit", "hub"
    elif data.inline is not None:
        missing, source = "", "inline"
    else:
        return
    fix = f"add {missing}, or remove it" if missing else "remove it, or use files with valFiles"
    message, involved = "requires validation data", (f"spec.data.{source}",)
    field = "spec.training.validation"
    yield Finding(field, "given", message, fix, "validation-data", involved, remove(field))


def validate_rewards_given(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Data without a preset needs rewards, or a user-defined environment or agent that gives them: only presets have a
    default rule. verl has one for each data set. algorithm.dpo needs none."""
    if spec.framework.type in ("verl", "openrlhf", "roll"):
        return
    data, multi_turn = spec.data, spec.rollout.multi_turn
    gives_rewards = multi_turn is not None and (multi_turn.agent is not None or ":" in (multi_turn.environment or ""))
    needs_rewards = has_engines(spec) and not gives_rewards
    if data is not None and data.preset is None and not spec.rewards and needs_rewards:
        message, fix = "is required for data without a preset", "add one, such as {name: exact}"
        given = tuple(f"spec.data.{name}" for name in SOURCES if getattr(data, name) is not None)
        yield Finding("spec.rewards", "none", message, fix, "rewards", given, use("spec.rewards", [{"name": "exact"}]))


def validate_image(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The job or its runtime must give an image."""
    if spec.cluster.image is None:
        yield Finding("spec.cluster.image", "none", "is required", "add it, or a runtimeRef with images", "image")


RULES = (
    validate_framework,
    validate_model_source,
    validate_seeded_model,
    validate_data_source,
    validate_data_columns,
    validate_validation_data,
    validate_rewards_given,
    validate_image,
)
