"""A command of verl as a job of framework.type verl: fields where the job has them, and overrides for the rest.

The settings that the job gives to verl are compared with the command's, so that both mean the same: what a field
does not express is an override, and a field that the command does not set has verl's default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from rlt.convert.defaults import subtract_defaults
from rlt.convert.draft import Draft
from rlt.convert.rendering import drop, hold_invalid, list_invalid, restore
from rlt.convert.settings import apply_settings, complete_suite
from rlt.convert.text import reveal
from rlt_api.frameworks.arguments import Argument, Program, parse_value
from rlt_api.frameworks.mapping import Setting, find, load_mapping
from rlt_api.frameworks.run import Run
from rlt_api.frameworks.verl.overrides import format_value
from rlt_api.frameworks.verl.settings import list_settings
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY
from rlt_api.validation.resolved_spec import build_resolved_spec, read_resolved_spec

Json = dict[str, Any]
PLACES = frozenset({
    "trainer.nnodes", "trainer.n_gpus_per_node", "trainer.default_local_dir", "trainer.experiment_name",
    "trainer.project_name", "trainer.logger", "trainer.default_hdfs_dir", "hydra.run.dir",
})  # fmt: skip
"""Settings that follow from the pods, the name and the loggers of the job."""
OLD_KEYS = (
    "actor_rollout_ref.actor.optim.warmup_style", "critic.model.fsdp_config.", "custom_reward_function.", "ray_init.",
    "reward_model.reward_",
)  # fmt: skip
"""Beginnings of keys that verl 0.9 has under other names."""
STEPS = "trainer.total_training_steps"
EPOCHS = "trainer.total_epochs"
FUNCTION = ".custom_reward_function."
RUN = Run(name="", namespace="", directory="")


def build_verl_job(draft: Draft, program: Program, line: int) -> None:
    """Set the fields and overrides with which verl gets the settings of the command, which is on this line."""
    for worker in draft.spec.setdefault("cluster", {}).setdefault("workers", [{}]):
        if "accelerator" in worker:
            worker["accelerator"].setdefault("resourceName", "nvidia.com/gpu")
    held = hold_invalid(draft.spec)
    unknown = {each.key for each in program.given.values() if not each.is_known}
    for each in program.given.values():
        if each.key in unknown:
            draft.leave_out(f"{each.key}={each.value}", "its value is not in the script", line)
    arguments = [replace(each, value=reveal(each.value)) for each in program.given.values() if each.is_known]
    given = {key: reveal(value) if isinstance(value, str) else value for key, value in program.values.items()}
    framework: Json = {"type": "verl"}
    if any(key.startswith(OLD_KEYS) for key in given):
        framework["version"] = "0.5"
    rewards = _read_function(given)
    fields = {key: value for key, value in given.items() if FUNCTION not in f".{key}"}
    fields = _keep_owners(fields)
    if STEPS in fields:  # the job has one of both
        fields.pop(EPOCHS, None)
    job = _apply(draft, fields, framework, rewards)
    others_given = {*given, *unknown}
    fields |= {key: setting.default for key in _render(job.spec) if (setting := _find_default(key, others_given))}
    job = _apply(draft, fields, framework, rewards)
    others = list[Argument]()
    while found := _find_others(job, arguments, {each.key for each in others}):
        others += found
        # A field with another value than the override would be misleading.
        fields = {key: value for key, value in fields.items() if key not in {each.key for each in found}}
        job = _apply(draft, fields, framework, rewards)
    if others:
        ordered = sorted(others, key=arguments.index)
        job.spec["framework"]["overrides"] = [f"{each.prefix}{each.key}={each.value}" for each in ordered]
    for note in job.left_out:
        if note.what.partition("=")[0] in PLACES:
            draft.leave_out(note.what, note.why, note.line)
    draft.spec = subtract_defaults(job.spec)
    restore(draft.spec, held)


def _find_others(job: Draft, arguments: Sequence[Argument], known: Collection[str]) -> list[Argument]:
    """The settings of the command that the fields of the job do not give."""
    rendered = _render(job.spec)
    found = []
    for each in arguments:
        same = each.key in rendered and _is_same(rendered[each.key], each.value)
        if each.key not in PLACES and each.key not in known and (each.prefix == "~" or not same):
            found.append(each)
    return found


def _keep_owners(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without settings that share a field with an earlier one of mapping.toml and have another value."""
    owners: dict[str, Any] = {}
    for setting in load_mapping().verl:
        if len(setting.fields) == 1 and setting.key in values:
            owners.setdefault(setting.fields[0], values[setting.key])
    settings = {key: find(key, load_mapping().verl) for key in values}
    fields = {key: setting.fields[0] for key, setting in settings.items() if setting and len(setting.fields) == 1}
    return {key: value for key, value in values.items() if owners.get(fields.get(key, ""), value) == value}


def _read_function(given: Mapping[str, Any]) -> list[Json]:
    """The reward function, if it is in a ConfigMap of the job or in a package. Other paths are overrides."""
    values = {f".{key}".rpartition(FUNCTION)[2]: value for key, value in given.items() if FUNCTION in f".{key}"}
    name = values.get("name", "compute_score")
    path = str(values.get("path") or "")
    if mounted := re.fullmatch(rf"{FUNCTIONS_DIRECTORY}/([^/]+)/(.+)\.py", path):
        function = {"name": f"{mounted[2].replace('/', '.')}:{name}", "configMap": mounted[1]}
    elif path.startswith("pkg://"):
        function = {"name": f"{path.removeprefix('pkg://')}:{name}"}
    else:
        return []
    kwargs = "reward_kwargs."
    options = {key.removeprefix(kwargs): value for key, value in values.items() if key.startswith(kwargs)}
    return [{"function": function, **({"options": options} if options else {})}]


def _apply(draft: Draft, values: Mapping[str, Any], framework: Json, rewards: list[Json]) -> Draft:
    """The fields of settings, beside those that the draft has."""
    job = Draft(spec=deepcopy(draft.spec))
    job.spec |= {"framework": dict(framework), "model": {}, "data": {}, "rewards": rewards}
    apply_settings(job, values, load_mapping().verl, {})
    complete_suite(job)
    if job.get("observability.wandb") and not job.get("observability.wandb.apiKey"):
        del job.spec["observability"]["wandb"]
    return job


def _render(spec: Json) -> dict[str, Any]:
    """The settings of verl's main_ppo for the spec, from which invalid fields are dropped: they become overrides."""
    while (invalid := list_invalid(spec)) and drop(spec, invalid):
        pass
    completed = {**spec, "data": {"files": ["unknown"], **spec.get("data", {})}}
    resolved = read_resolved_spec(build_resolved_spec(completed, None), {}).spec
    assert resolved
    return {key.lstrip("+"): value for key, value in list_settings(resolved, RUN).items()}


def _find_default(key: str, given: Collection[str]) -> Setting | None:
    """The setting whose default the command uses. None if it gives the setting, or if no field has it."""
    setting = find(key, load_mapping().verl)
    if setting is None or key in given or key in PLACES or setting.is_group or setting.default is None:
        return None
    return setting if len(setting.fields) == 1 else None


def _is_same(rendered: Any, text: str) -> bool:
    """Whether a setting of the job is the command's, in which a list of one item may be the item."""
    if isinstance(rendered, list) and len(rendered) == 1 and not text.startswith("["):
        rendered = rendered[0]
    return _normalize(format_value(rendered)) == _normalize(text)


def _normalize(text: str) -> object:
    """A value without the quotes and spaces that do not change it."""
    value = parse_value(text)
    return re.sub(r"[\s'\"]", "", value) if isinstance(value, str) else value
