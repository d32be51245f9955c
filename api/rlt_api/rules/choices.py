"""Combinations of framework, model, data, rewards and image."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.factors import nearest_multiples
from rlt_api.findings.finding import Finding, use
from rlt_api.findings.kinds import effect_only_with, exactly_one, not_divisor, not_used, only_for, replaceable
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.model_images import IMAGE_SCHEME
from rlt_api.spec.objects import SCHEME
from rlt_api.spec.worker_groups import has_engines

TYPE = "spec.framework.type"
SOURCES = ("preset", "files", "hub", "inline")


def validate_model_source(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Exactly one of path and fromSeed must be given; revision is only for models on the Hugging Face hub."""
    model = spec.model
    if model is None:
        return
    rule = "model-source"
    if (model.path is None) == (model.from_seed is None):
        given = ["fromSeed", "path"] if model.path else []
        value = "none" if model.path is None else "both"
        fields = ("spec.model.path", "spec.model.fromSeed")
        yield exactly_one("spec.model", given, of="path and fromSeed", value=value, rule=rule, involved=fields)
    if model.revision and (model.from_seed or (model.path or "").startswith(("/", SCHEME, IMAGE_SCHEME))):
        hub = "models on the Hugging Face hub"
        instead = "set path to the name of a model on the hub"
        involved = ("spec.model.path",)
        field = "spec.model.revision"
        yield only_for(field, hub, value=model.revision, instead=instead, rule=rule, involved=involved)


def validate_seeded_model(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """hiddenSize must be an even multiple of numAttentionHeads (rotary embeddings rotate pairs of dimensions), and
    numKeyValueHeads must divide numAttentionHeads."""
    seeded = spec.model.from_seed if spec.model else None
    if seeded is None:
        return
    heads = seeded.num_attention_heads
    what = f"numAttentionHeads {heads}"
    involved = ("spec.model.fromSeed.numAttentionHeads",)
    if seeded.hidden_size % (2 * heads):
        field = "spec.model.fromSeed.hiddenSize"
        sizes = nearest_multiples(seeded.hidden_size, 2 * heads)
        message = f"is not an even multiple of {what}"
        yield replaceable(field, seeded.hidden_size, message, *sizes, rule="heads", involved=involved)
    if heads % seeded.num_key_value_heads:
        field = "spec.model.fromSeed.numKeyValueHeads"
        yield not_divisor(field, seeded.num_key_value_heads, heads, what, rule="heads", involved=involved)


def validate_data_source(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Exactly one of preset, files, hub and inline must be given. path is for gsm8k and math."""
    data = spec.data
    if data is None:
        return
    given = [name for name in SOURCES if getattr(data, name) is not None]
    source = (f"spec.data.{given[0]}",) if given else ("spec.data.preset",)
    if len(given) != 1:
        involved = () if given else source
        yield exactly_one("spec.data", given, of=", ".join(SOURCES), rule="data-source", involved=involved)
    if data.path is not None and data.preset not in ("gsm8k", "math"):
        by = f"preset {data.preset}" if data.preset else given[0] if given else "any source"
        yield not_used("spec.data.path", by, value=data.path, rule="data-path", involved=source)


def validate_data_columns(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """promptKey, answerKey, imageKey, filters, mixture and curriculum are only for files and hub."""
    data = spec.data
    if data is None or data.files is not None or data.hub is not None:
        return
    sources = tuple(f"spec.data.{name}" for name in SOURCES if getattr(data, name) is not None)
    for field, is_given in {
        "spec.data.promptKey": data.prompt_key != "prompt",
        "spec.data.answerKey": data.answer_key != "answer",
        "spec.data.imageKey": data.image_key is not None,
        "spec.data.filters": bool(data.filters),
        "spec.data.mixture": bool(data.mixture),
        "spec.data.curriculum": data.curriculum is not None,
    }.items():
        if is_given:
            yield effect_only_with(field, "files and hub", instead="add files", rule="data-source", involved=sources)


def validate_rewards_given(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Data without a preset needs rewards, or an agent, or an environment of the user or of OpenEnv, that gives them:
    only presets have a default rule. algorithm.dpo needs none."""
    data = spec.data
    multi_turn = spec.rollout.multi_turn
    gives_rewards = multi_turn is not None and (
        multi_turn.agent is not None or multi_turn.openenv is not None or ":" in (multi_turn.environment or "")
    )
    needs_rewards = has_engines(spec) and not gives_rewards
    if data is not None and data.preset is None and not spec.rewards and needs_rewards:
        field = "spec.rewards"
        message = "is required for data without a preset"
        fix = "add one, such as {name: exact}"
        involved = tuple(f"spec.data.{name}" for name in SOURCES if getattr(data, name) is not None)
        edits = use(field, [{"name": "exact"}])
        yield Finding(field, "none", message, fix, rule="rewards", involved=involved, edits=edits)


def validate_image(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """The job or its runtime must give an image."""
    if spec.cluster.image is None:
        fix = "add it, or a runtimeRef with images"
        yield Finding("spec.cluster.image", "none", "is required", fix, rule="image")


RULES = (
    validate_model_source,
    validate_seeded_model,
    validate_data_source,
    validate_data_columns,
    validate_image,
)
BUILTIN_RULES = (validate_rewards_given,)
