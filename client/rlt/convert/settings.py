"""Settings of verl and ROLL as fields of a builtin job, by mapping.toml."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from rlt.convert.draft import Draft
from rlt_api.findings.spelling import find_nearest_word
from rlt_api.frameworks.foreign_names import ESTIMATORS
from rlt_api.frameworks.mapping import Setting, find, find_field
from rlt_api.model import INT_OR_STRING
from rlt_api.schema.model_schema import Schema

ACTOR = "actor_rollout_ref.actor"
DISABLING: Mapping[str, tuple[str, object]] = {
    "spec.algorithm.klInReward": ("algorithm.use_kl_in_reward", False),
    "spec.algorithm.klLossCoef": (f"{ACTOR}.use_kl_loss", False),
    "spec.algorithm.klLossType": (f"{ACTOR}.use_kl_loss", False),
    "spec.algorithm.filterGroups": ("algorithm.filter_groups.enable", False),
    "spec.algorithm.overlongBuffer": ("reward.reward_kwargs.overlong_buffer_cfg.enable", False),
    "spec.algorithm.rolloutCorrection": ("algorithm.rollout_correction.rollout_is", None),
    "spec.algorithm.distillation": ("distillation.enabled", False),
    "spec.model.lora": ("actor_rollout_ref.model.lora_rank", 0),
    "spec.rollout.multiTurn": ("actor_rollout_ref.rollout.multi_turn.enable", False),
}
"""Block or field -> verl's switch and its default. A false switch means that the field is not set."""
SWITCHES = frozenset(switch for switch, _ in DISABLING.values()) - {"actor_rollout_ref.model.lora_rank"}
VERL_KL_LOSS_COEF = 0.001
"""verl's default (verl/trainer/config/actor/actor.yaml, verl 0.9.1): rlt's default has no KL term."""
FIRST = ("trainer.total_training_steps", "max_steps", "data.filter_overlong_prompts")
"""Settings that the conversion of others reads."""
UNSET: Mapping[str, tuple[object, ...]] = {
    "spec.checkpoint.saveFreq": (-1, 0), "spec.evaluation[].every": (-1, 0),
    "spec.training.lrSchedule.warmupSteps": (-1,), "spec.training.lrSchedule.decaySteps": (-1,),
    "spec.training.fsdp.fsdpSize": (-1,), "spec.training.reference.fsdpSize": (-1,),
    "spec.algorithm.rolloutCorrection.bypassMode": (False,),
    "spec.training.totalSteps": (-1, 0),
}  # fmt: skip
"""Field -> values of the other program for which it is omitted."""
VALUES: Mapping[str, Mapping[object, object]] = {
    "spec.algorithm.klLossType": {"k1": "kl", "k2": "mse", "k3": "low_var_kl"},
    "spec.algorithm.policyLoss": {"token": "vanilla", "seq": "gspo"},
    "spec.checkpoint.maxToKeep": {-1: 0},
    "spec.checkpoint.resume": {"disable": "never", "resume_path": "path"},
    "spec.model.dtype": {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"},
    "spec.cluster.workers[].accelerator.resourceName": {
        "cuda": "nvidia.com/gpu",
        "gpu": "nvidia.com/gpu",
        "npu": "huawei.com/Ascend910",
    },
    "spec.rollout.mode": {True: "colocated", False: "separate"},
    "spec.training.optimizer": {"AdamW": "adamw", "Muon": "muon"},
    "spec.training.strategy": {"fsdp": "fsdp2", "fsdp2_train": "fsdp2", "dp": "fsdp2"},
}
"""Field -> its values for the other program's values."""
DEFAULTS = (
    "actor_rollout_ref.rollout.n", "data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size",
    "data.max_prompt_length", "data.max_response_length", "algorithm.adv_estimator",
    "actor_rollout_ref.actor.optim.lr",
)  # fmt: skip
"""verl's keys whose default a job gets if the source does not give them: rlt's differ, or do not exist."""


SUITE = "validation"
"""Name of the suite with the files of a validation."""
NEEDED = {
    "training.ppoMaxTokenLenPerDevice": "training.useDynamicBsz",
    "observability.profiler": "observability.profiler.steps",
}
"""Field -> the one without which it has no effect."""
CHOICES: Mapping[str, Schema] = {"spec.training.strategy": {"enum": ["fsdp2"]}}
"""Values that a rule checks, and not the schema."""


ITEM = re.compile(r"""\s*'[^']*'\s*|\s*"[^"]*"\s*|[^,]+""")
"""An item of a list: in quotes, or without a comma."""


def apply_settings(
    draft: Draft,
    values: Mapping[str, object],
    settings: tuple[Setting, ...],
    lines: Mapping[str, int],
    switches: Mapping[str, tuple[str, object]] = DISABLING,
    known: Collection[str] = (),
) -> None:
    """Set the fields of all settings. `values`: key -> JSON. What has no field is left out with its reason.

    `switches`: field -> the framework's switch. `known`: settings of the framework that mapping.toml does not have.
    """
    loss = switches["spec.algorithm.klLossCoef"][0]
    names = SWITCHES if switches is DISABLING else {switch for switch, _ in switches.values()}
    for key, value in sorted(values.items(), key=lambda item: item[0] not in FIRST):
        setting = find(key, settings)
        if setting is not None and setting.renamed:
            key = setting.renamed
            setting = find(setting.renamed, settings)
        what = f"{key}={_show(value)}"
        line = lines.get(key)
        if key == "trainer.total_epochs" and isinstance(steps := values.get("trainer.total_training_steps"), int):
            draft.leave_out(what, f"trainer.total_training_steps={steps} ends the training", line)
        elif setting is None and key in known:
            draft.leave_out(what, "no field corresponds to it", line)
        elif setting is None:
            meant = find_nearest_word(key, [each.key for each in settings], max_distance=3)
            draft.leave_out(what, f"it is not a known setting{f'; did you mean {meant}?' if meant else ''}", line)
        elif not setting.fields:
            draft.leave_out(what, setting.reason.rstrip("."), line)
        elif len(setting.fields) > 1:
            draft.leave_out(what, f"use {', '.join(setting.fields)}. {setting.note}".rstrip(". "), line)
        elif key in names:
            if value and key not in (loss, "algorithm.rollout_correction.rollout_is"):
                _enable(draft, setting.fields[0])
            elif not value and key == loss:
                draft.put("algorithm.klLossCoef", 0)
            elif switches is DISABLING and key == loss and draft.get("algorithm.klLossCoef") is None:
                draft.put("algorithm.klLossCoef", VERL_KL_LOSS_COEF)
        elif switch := _find_switch(setting.fields[0], values, switches):
            draft.leave_out(what, f"it has no effect without {switch}", line)
        else:
            _set(draft, setting, key, value, line)
    if draft.get("algorithm.advEstimator") == "gae" and draft.get("algorithm.critic") is None:
        draft.put("algorithm.critic", {})
    _drop_unused(draft)


def add_defaults(values: Mapping[str, object], settings: tuple[Setting, ...]) -> dict[str, object]:
    """The values with verl's defaults of DEFAULTS."""
    found = {key: setting.default for key in DEFAULTS if (setting := find(key, settings))}
    return {**found, **values}


def complete_suite(draft: Draft) -> None:
    """Complete the suite of the validation's settings, or leave it out if it has no files or never runs.

    verl by default, and ROLL always, validate before the first step.
    """
    for suite in draft.spec.pop("evaluation", []):
        suite.setdefault("beforeTrain", True)
        if "data" not in suite:
            draft.leave_out(f"evaluation {_show(suite)}", "it has no files: set spec.evaluation[].data")
        elif "every" not in suite and not suite["beforeTrain"]:
            draft.leave_out(f"evaluation {_show(suite)}", "it never runs: set spec.evaluation[].every")
        else:
            draft.put("evaluation", [{"name": SUITE, **suite}])


def _drop_unused(draft: Draft) -> None:
    """Drop fields that have no effect without others that the source does not give."""
    for field, needed in NEEDED.items():
        value = draft.get(field)
        if value is not None and not draft.get(needed):
            parent, _, name = field.rpartition(".")
            draft.get(parent).pop(name)
            draft.leave_out(f"{field} {_show(value)}", f"it has no effect without spec.{needed}")


def _enable(draft: Draft, block: str) -> None:
    if draft.get(block) is None:
        draft.put(block, {})


def _find_switch(path: str, values: Mapping[str, object], switches: Mapping[str, tuple[str, object]]) -> str | None:
    """The framework's switch that disables a field."""
    if path == "spec.algorithm.rolloutCorrection.bypassMode":  # it needs no weights
        return None
    for block, (switch, default) in switches.items():
        if (path == block or path.startswith(f"{block}.")) and not values.get(switch, default):
            return switch
    return None


def _set(draft: Draft, setting: Setting, key: str, value: object, line: int | None) -> None:
    path = setting.fields[0]
    note = setting.note
    what = f"{key}={_show(value)}"
    if value in UNSET.get(path, ()) or value is None or value == "null":
        draft.leave_out(what, f"{path} is not set: it has the same meaning", line)
        return
    if path == "spec.algorithm.advEstimator" and value in ESTIMATORS:
        value, others = ESTIMATORS[str(value)]
        if others:
            draft.leave_out(what, f"also set {others} in spec.algorithm", line)
    if path == "spec.data.overlongPrompts" and isinstance(value, bool):
        if value:
            draft.put(path, "filter")
        return
    if path == "spec.data.overlongPrompts" and draft.get(path) == "filter":
        return
    if key.endswith("warmup_steps_ratio") or key.endswith("warmup_ratio"):
        steps = draft.get("training.totalSteps")
        if value and steps:
            draft.put(path, round(float(str(value)) * steps))
        elif value:
            draft.leave_out(what, f"{path} is a number of steps: multiply the ratio by the steps", line)
        return
    if path.endswith("function.name") and ":" not in str(value):
        draft.leave_out(what, f"{path} is MODULE:FUNCTION, and its module is on the PYTHONPATH", line)
        return
    if path == "spec.data.chatTemplate" and "{" not in str(value):
        draft.leave_out(what, "it is the name of a template: spec.data.chatTemplate is the template itself", line)
        return
    if key.endswith(("ppo_micro_batch_size", "log_prob_micro_batch_size")):
        draft.leave_out(what, f"it is for all devices: divide it by their number for {path}", line)
        return
    value = VALUES.get(path, {}).get(value, value) if isinstance(value, str | bool) else value
    if path.endswith(".enableGradientCheckpointing") and "disable" in key:
        value = not value
    schema = {**(find_field(path) or {}), **CHOICES.get(path, {})}
    fitted = _fit(value, schema)
    if fitted is None:
        draft.leave_out(what, f"{path} does not take this value. {note}".rstrip(". "), line)
    else:
        draft.put(path, fitted)


def _fit(value: Any, schema: Schema) -> Any:
    """The value in the type of a field. None if it does not fit."""
    kind = schema.get("type")
    choices = schema.get("enum")
    if choices:
        return value if value in choices else None
    if kind == "array":
        items = value if isinstance(value, list) else _split_list(value)
        fitted = [_fit(item, schema["items"]) for item in items]
        return None if None in fitted else fitted
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return (int(value) if value == int(value) else None) if kind == "integer" else value
    if kind == "string" or INT_OR_STRING in schema:
        return str(value) if isinstance(value, str | int | float) and "$" not in str(value) else None
    return value if isinstance(value, dict) else None


def _split_list(value: Any) -> list[Any]:
    """Hydra's list as text, such as ['a','b'] or [1,2]."""
    text = str(value).strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [value]
    return [_number(word.strip().strip("'\"")) for word in ITEM.findall(text[1:-1]) if word.strip()]


def _number(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _show(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
