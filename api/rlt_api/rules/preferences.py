"""algorithm.dpo: training on pairs, without engines."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.findings.kinds import replaceable, superfluous
from rlt_api.model import ApiModel
from rlt_api.rules.evaluation import list_suite_data
from rlt_api.spec.job_spec import RLTrainingJobSpec

DPO = "spec.algorithm.dpo"
RULE = "dpo"
MESSAGE = "has no meaning with algorithm.dpo, which trains on pairs of the data"
WHOLE = ("filter", "error")
"""The values of overlongPrompts that do not truncate."""


def validate_pairs(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """algorithm.dpo needs pairs in files or hub, and leaves out or rejects those that are too long."""
    data = spec.data
    if spec.algorithm.dpo is None or data is None:
        return
    given = {
        "spec.data.preset": data.preset is not None,
        "spec.data.inline": data.inline is not None,
        **{f"{field}.preset": own.preset is not None for field, own in list_suite_data(spec)},
    }
    for field, is_given in given.items():
        if is_given:
            message = "has no pairs, which algorithm.dpo needs"
            fix = "use files or hub with the columns prompt, chosen and rejected"
            yield Finding(field, "given", message, fix, rule=RULE, involved=(DPO,))
    value = data.overlong_prompts
    if value not in WHOLE:
        message = "cannot be combined with algorithm.dpo: pairs are not truncated"
        yield replaceable("spec.data.overlongPrompts", value, message, *WHOLE, rule=RULE, involved=(DPO,))


def validate_fields_without_meaning(spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """With algorithm.dpo there are no engines, rewards and advantages, and a step is one optimizer step: the fields for
    them must not be given."""
    if spec.algorithm.dpo is None:
        return
    data = spec.data
    training = spec.training
    given = {
        "spec.model.lora.syncAdapters": bool(spec.model and spec.model.lora and spec.model.lora.sync_adapters),
        "spec.rewards": bool(spec.rewards),
        **_list_given(spec.rollout, "spec.rollout"),
        **_list_given(spec.algorithm, "spec.algorithm"),
        "spec.data.answerKey": data is not None and data.answer_key != "answer",
        "spec.data.imageKey": data is not None and data.image_key is not None,
        "spec.data.mixture": data is not None and bool(data.mixture),
        "spec.data.curriculum": data is not None and data.curriculum is not None,
        "spec.training.warmup": training.warmup is not None,
        "spec.training.ppoEpochs": training.ppo_epochs != 1,
        "spec.training.ppoMiniBatchSize": training.ppo_mini_batch_size not in (None, training.train_batch_size),
        **{f"{field}.answerKey": own.answer_key is not None for field, own in list_suite_data(spec)},
        **{
            f"spec.evaluation[{index}].{name}": is_given
            for index, suite in enumerate(spec.evaluation)
            for name, is_given in {
                "responsesPerPrompt": suite.responses_per_prompt != 1,
                "temperature": suite.temperature != 0,
                "promoteIf": suite.promote_if is not None,
            }.items()
        },
        "spec.observability.recordSteps": bool(spec.observability.record_steps),
    }
    for field, is_given in given.items():
        if is_given and field != DPO:
            yield superfluous(field, "given", MESSAGE, rule=RULE, involved=(DPO,))


def _list_given(block: ApiModel, path: str) -> dict[str, bool]:
    """Return for each field of a block whether it has another value than its default."""
    return {
        f"{path}.{field.alias}": getattr(block, name) != field.get_default(call_default_factory=True)
        for name, field in type(block).model_fields.items()
    }


RULES = (validate_pairs, validate_fields_without_meaning)
