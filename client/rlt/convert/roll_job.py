"""ROLL's config as a job of framework.type roll, with fields and overrides, or as a job of rlt's trainer."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.reader import flatten, show
from rlt.convert.rendering import drop, hold_invalid, list_invalid, restore
from rlt.convert.settings import apply_settings, complete_suite
from rlt_api.frameworks.mapping import find, load_mapping
from rlt_api.frameworks.roll.keys import list_problems
from rlt_api.frameworks.roll.rules import validate_roll_fields
from rlt_api.frameworks.roll.settings import list_settings
from rlt_api.frameworks.run import Run
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.validation.validate import validate_job
from rlt_pod.command.roll_layout import count_shares, parse_devices

OF_THE_RUN = frozenset(
    {
        *("hydra", "defaults", "exp_name", "system_envs", "num_nodes", "num_gpus_per_node", "output_dir", "base_dir"),
        *("logging_dir", "checkpoint_config", "resume_from_checkpoint", "track_with", "tracker_kwargs"),
        *("logging_steps", "profiler_output_dir", "model_download_type", "local_rank"),
    }
)
"""Keys of the machine and the run. The job has them in other fields, or the operator sets them."""
CARRIED = ("exp_name", "system_envs", "num_nodes", "num_gpus_per_node")
"""The settings above that the job has: its name, variables and pods."""
SWITCHES: Mapping[str, tuple[str, object]] = {
    "spec.algorithm.klInReward": ("add_token_level_kl", False),
    "spec.algorithm.klLossCoef": ("use_kl_loss", False),
    "spec.algorithm.klLossType": ("use_kl_loss", False),
}
"""Block or field -> ROLL's switch and its default."""
LAYOUT = re.compile(r"\.(strategy_name|device_mapping|\w+_parallel_size|ulysses_size|num_gpus_per_worker)$")
"""Settings from which others follow."""


CRITIC = re.compile(r"reward_pretrain|value_clip|critic_warmup|critic\..*")
"""Settings of the critic, which gae alone has."""


def build_builtin_job(draft: Draft, config: dict[str, Any]) -> None:
    """Set the fields of the settings."""
    wanted = _name_run(draft, config)
    _apply_fields(draft, wanted)
    _apply_data(draft, config)
    if draft.get("algorithm.advEstimator") != "gae":
        draft.spec.get("algorithm", {}).pop("critic", None)
        for key, value in flatten(wanted):
            if CRITIC.fullmatch(key):
                draft.leave_out(f"{key}={show(value)}", "only adv_estimator gae has a critic", draft.find_line(key))


def build_roll_job(draft: Draft, config: dict[str, Any]) -> None:
    """Make it a job of ROLL: its settings come from the fields, and overrides for all that differ from them."""
    for worker in draft.spec["cluster"]["workers"]:
        worker["accelerator"].setdefault("resourceName", "nvidia.com/gpu")
    held = hold_invalid(draft.spec)
    wanted = _name_run(draft, config)
    kept = [*draft.left_out]
    _apply_fields(draft, wanted)
    draft.left_out[:] = kept
    if draft.get("algorithm.advEstimator") != "gae":
        draft.spec.get("algorithm", {}).pop("critic", None)
    _apply_data(draft, config)
    draft.put("data.promptKey", _get(config, "actor_train", "data_args").get("messages") or "messages")
    draft.put("framework", {"type": "roll"})
    unknown = {problem.key for problem in list_problems(config) if problem.unknown}
    if not draft.get("evaluation[].data.files"):
        unknown.add("eval_steps")  # it has no effect
    _apply_overrides(draft, wanted, unknown)
    restore(draft.spec, held)


def _name_run(draft: Draft, config: Mapping[str, Any]) -> dict[str, Any]:
    """Name the keys of the run in comments. Return the others."""
    for key in sorted(OF_THE_RUN & config.keys() - {*CARRIED}):
        draft.leave_out(f"{key} {show(config[key])}", _explain(key), draft.find_line(key))
    return {key: value for key, value in config.items() if key not in OF_THE_RUN}


def _apply_data(draft: Draft, config: Mapping[str, Any]) -> None:
    """Set the files of the prompts and of the validation, and the prompts of a mini-batch."""
    if files := _list_files(_get(config, "actor_train", "data_args")):
        draft.put("data.files", files)
    if validated := _list_files(_get(config, "validation", "data_args")):
        draft.put("evaluation[].data.files", validated)
        complete_suite(draft)
    elif draft.spec.pop("evaluation", None):
        why = "a validation needs files: validation.data_args.file_name"
        draft.leave_out(f"eval_steps {show(config.get('eval_steps'))}", why, draft.find_line("eval_steps"))
    draft.spec.get("training", {}).pop("ppoMiniBatchSize", None)
    if prompts := _count_mini_batch(config):
        draft.put("training.ppoMiniBatchSize", prompts)
    elif steps := _get(config, "actor_train", "training_args").get("gradient_accumulation_steps"):
        key = "actor_train.training_args.gradient_accumulation_steps"
        why = "its mini-batch is not a whole number of prompts: set spec.training.ppoMiniBatchSize"
        draft.leave_out(f"{key} {show(steps)}", why, draft.find_line(key))


def _explain(key: str) -> str:
    """Why a key of the run is not carried over."""
    setting = find(key, load_mapping().roll)
    if key in ("hydra", "defaults"):
        return "it belongs to Hydra"
    if setting and setting.fields:
        return f"the operator sets it: use {', '.join(setting.fields)}. {setting.note}".rstrip(". ")
    return setting.reason.rstrip(".") if setting else "the operator sets it"


def _get(config: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """An object in the config; an empty one if there is none."""
    node: Any = config
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def _apply_fields(draft: Draft, config: dict[str, Any]) -> None:
    values = {}
    for key, value in flatten({key: each for key, each in config.items() if key not in ("system_envs", "rewards")}):
        if isinstance(value, str) and "${" in value:
            draft.leave_out(f"{key}: {value}", "an interpolation", draft.find_line(key))
        elif value != {}:
            values[key] = value
    if "rewards" in config:
        why = "a list of rules, models and functions: set spec.rewards"
        draft.leave_out(f"rewards {show(config['rewards'])}", why, draft.find_line("rewards"))
    values.pop("validation.data_args.file_name", None)  # _apply_data
    known = values.keys() - {problem.key for problem in list_problems(config) if problem.unknown}
    apply_settings(draft, values, load_mapping().roll, draft.lines, SWITCHES, known)
    if not config.get("use_kl_loss"):  # ROLL's default
        draft.put("algorithm.klLossCoef", 0)


def _apply_overrides(draft: Draft, wanted: Mapping[str, Any], unknown: Collection[str]) -> None:
    """Add an override for each setting that the fields do not give, except keys that ROLL ignores."""
    overrides: dict[str, str] = {}
    for is_last in (False, True):  # first the strategies and devices, from which sizes and options follow
        draft.put("framework.overrides", [f"{key}={value}" for key, value in overrides.items()])
        rendered = _render(draft)
        if rendered is None:
            return
        differences = [each for each in _list_differences(wanted, rendered) if each[0] not in unknown]
        overrides |= {key: _write(value) for key, value in differences if is_last or LAYOUT.search(key)}
    draft.put("framework.overrides", [f"{key}={value}" for key, value in overrides.items()])
    if not overrides:
        draft.spec["framework"].pop("overrides")


def _list_files(data: Mapping[str, Any]) -> list[str]:
    files = data.get("file_name") or []
    return [files] if isinstance(files, str) else list(files)


def _count_mini_batch(config: Mapping[str, Any]) -> int | None:
    """The prompts of a mini-batch. None if they are not an integer, or the shares are unknown."""
    role = _get(config, "actor_train")
    group = config.get("num_return_sequences_in_group", 1)
    arguments = _get(role, "training_args")
    shares = count_shares(role, len(parse_devices(role.get("device_mapping")) or []))
    sizes = [arguments.get("per_device_train_batch_size", 8), arguments.get("gradient_accumulation_steps", 1)]
    if not shares or not all(isinstance(each, int) and each > 0 for each in [*sizes, group]):
        return None
    prompts, rest = divmod(sizes[0] * sizes[1] * shares, group)
    return prompts if prompts and not rest else None


def _render(draft: Draft) -> dict[str, Any] | None:
    """ROLL's config of the fields so far, without those that are invalid or that ROLL has no setting for: they become
    overrides. None, with a comment, if the job has no model."""
    while rejected := _list_rejected(draft):
        if not drop(draft.spec, rejected):
            raise ConvertError(f"line 1: {rejected[0]} cannot be converted: use --to command.")
    spec = validate_job("any", _complete(draft.spec)).spec
    if spec is None or spec.model is None:
        draft.leave_out("settings without a field", "they are overrides of a job with spec.model")
        return None
    return list_settings(spec, Run("", "", ""))


def _list_rejected(draft: Draft) -> list[str]:
    completed = _complete(draft.spec)
    if invalid := list_invalid(completed):
        return invalid
    spec = validate_job("any", completed).spec
    return [each.field for each in validate_roll_fields(spec)] if spec else []


def _complete(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with what the source may not have, and a valid job must."""
    group = {**spec["cluster"]["workers"][0]}
    group["accelerator"] = {"resourceName": "nvidia.com/gpu", "count": 8, **group.get("accelerator", {})}
    completed = add_accelerator_defaults({**spec, "cluster": {**spec["cluster"], "workers": [group]}})
    return {**completed, "data": {"files": ["unknown"], **completed.get("data", {})}}


def _list_differences(
    wanted: Mapping[str, Any], rendered: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The settings of the source that differ from the job's, by key."""
    for key, value in wanted.items():
        path = f"{prefix}{key}"
        given = rendered.get(key)
        if path.endswith("device_mapping") and parse_devices(value) == parse_devices(given):
            continue
        if isinstance(value, dict) and value and isinstance(given, dict):
            yield from _list_differences(value, given, f"{path}.")
        elif given != value != [given] and given != [value] and not (value is None and key not in rendered):
            yield path, value


def _write(value: Any) -> str:
    """A value of an override. Text that would be read as another type is quoted."""
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_/$][^'\"\[{]*", value) and value.lower() not in ("true", "false", "null")
        return value if plain else f"'{value}'"
    return json.dumps(value)
