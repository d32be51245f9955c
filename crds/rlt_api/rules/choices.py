"""Which blocks go together: framework, model, data, image."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.factors import divisors_around, either, multiples_around
from rlt_api.finding import Finding
from rlt_api.runtime import BUILTIN_ONLY
from rlt_api.spec import RLTrainingJobSpec

TYPE = "spec.framework.type"
SOURCES = ("preset", "files", "hub", "inline")


def framework_has_what_it_needs(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A command, or model, data and steps; and nothing that the other one reads."""
    framework, rule = spec.framework, "framework"
    if framework.type == "command":
        if not framework.command:
            given = "none" if framework.command is None else "[]"
            fix = "give program and arguments"
            yield Finding("spec.framework.command", given, "type command needs it", fix, rule, (TYPE,))
        for field in BUILTIN_ONLY:
            if field in spec.model_fields_set:
                yield Finding(f"spec.{field}", "given", "a command does not read it", "leave it out", rule, (TYPE,))
        return
    for field in ("command", "workingDirectory", "totalSteps"):
        if field in framework.to_json():
            fix = "leave it out, or give type: command"
            yield Finding(f"spec.framework.{field}", "given", "type builtin does not read it", fix, rule)
    for field in ("model", "data"):
        if getattr(spec, field) is None:
            yield Finding(f"spec.{field}", "none", "framework builtin needs it", f"add spec.{field}", rule)
    if spec.training.total_steps is None and spec.training.total_epochs is None:
        message = "framework builtin needs it"
        fix, involved = "give the number of steps, or totalEpochs", ("spec.training.totalEpochs",)
        yield Finding("spec.training.totalSteps", "none", message, fix, rule, involved)


def model_has_one_source(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A path or a seed."""
    model = spec.model
    if model is None:
        return
    if (model.path is None) == (model.from_seed is None):
        given = "none" if model.path is None else "both"
        message, involved = "exactly one of path and fromSeed is needed", ("spec.model.path", "spec.model.fromSeed")
        yield Finding("spec.model", given, message, "give one of them", "model-source", involved)
    if model.revision and (model.from_seed or (model.path or "").startswith("/")):
        message = "is for models on the Hugging Face hub"
        fix = "leave it out, or give path the model's name on the hub"
        yield Finding("spec.model.revision", model.revision, message, fix, "model-source", ("spec.model.path",))


def seeded_model_divides(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Heads of an even size (rotary positions turn pairs of dimensions), and groups of them."""
    seeded = spec.model.from_seed if spec.model else None
    if seeded is None:
        return
    field, heads = "spec.model.fromSeed", seeded.num_attention_heads
    if seeded.hidden_size % (2 * heads):
        sizes = either(multiples_around(seeded.hidden_size, 2 * heads))
        message = f"is not an even multiple of numAttentionHeads {heads}"
        involved = (f"{field}.numAttentionHeads",)
        yield Finding(f"{field}.hiddenSize", str(seeded.hidden_size), message, f"use {sizes}", "heads", involved)
    if heads % seeded.num_key_value_heads:
        sizes = either(divisors_around(seeded.num_key_value_heads, heads))
        involved = (f"{field}.numAttentionHeads",)
        message, value = f"does not divide numAttentionHeads {heads}", str(seeded.num_key_value_heads)
        yield Finding(f"{field}.numKeyValueHeads", value, message, f"use {sizes}", "heads", involved)


def data_has_one_source(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A preset, files, a data set on the hub, or what stands here."""
    data = spec.data
    if data is None:
        return
    given = [name for name in SOURCES if getattr(data, name) is not None]
    if len(given) != 1:
        message = f"exactly one of {', '.join(SOURCES)} is needed"
        involved = () if given else ("spec.data.preset",)
        yield Finding("spec.data", " and ".join(given) or "none", message, "give one of them", "data-source", involved)
    field, involved = "spec.data.path", (f"spec.data.{given[0]}",) if given else ("spec.data.preset",)
    if data.preset in ("gsm8k", "math") and data.path is None:
        message = f"preset {data.preset} needs it"
        yield Finding(field, "none", message, "give the folder with the data set's files", "data-path", involved)
    if data.path is not None and data.preset not in ("gsm8k", "math"):
        message = f"{f'preset {data.preset}' if data.preset else given[0] if given else 'nothing'} does not read it"
        yield Finding(field, data.path, message, "leave it out", "data-path", involved)
    if data.val_files is not None and data.files is None:
        message, fix = "goes with files", "leave it out, or give files"
        yield Finding("spec.data.valFiles", "given", message, fix, "data-source", ("spec.data.files",))


def columns_belong_to_files(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Only files and data sets of the hub have columns and rows to filter."""
    data = spec.data
    if data is None or data.files is not None or data.hub is not None:
        return
    involved = ("spec.data.files", *(f"spec.data.{name}" for name in SOURCES if getattr(data, name) is not None))
    for name, given in (
        ("promptKey", data.prompt_key != "prompt"),
        ("answerKey", data.answer_key != "answer"),
        ("filters", bool(data.filters)),
    ):
        if given:
            message, fix = "is read for files and hub only", "leave it out, or give files"
            yield Finding(f"spec.data.{name}", "given", message, fix, "data-source", involved[1:])


def rewards_are_known(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """A preset brings a rule of its own; other data needs one."""
    data = spec.data
    if data is not None and data.preset is None and not spec.rewards:
        message, fix = "only presets bring a rule of their own", "name one, such as {name: exact}"
        given = tuple(f"spec.data.{name}" for name in SOURCES if getattr(data, name) is not None)
        yield Finding("spec.rewards", "none", message, fix, "rewards", given)


def image_is_known(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Of the job, or of its runtime."""
    if spec.cluster.image is None:
        yield Finding("spec.cluster.image", "none", "is needed", "give it, or a runtimeRef whose images do", "image")


RULES = (
    framework_has_what_it_needs,
    model_has_one_source,
    seeded_model_divides,
    data_has_one_source,
    columns_belong_to_files,
    rewards_are_known,
    image_is_known,
)
