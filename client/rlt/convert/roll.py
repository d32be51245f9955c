"""ROLL's YAML as a job: of ROLL with the fields of a job, of rlt's trainer, or with the same file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.launch import apply_environment
from rlt.convert.settings import apply_settings
from rlt_api.frameworks.mapping import load_mapping
from rlt_api.frameworks.roll.keys import list_problems
from rlt_api.frameworks.roll.rules import validate_roll_fields
from rlt_api.frameworks.roll.settings import DIRECTORY, ENTRY, LAUNCHER, list_settings
from rlt_api.frameworks.run import Run
from rlt_api.spec.accelerator_defaults import add_accelerator_defaults
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import PROGRAMS_PATH
from rlt_pod.command.roll_layout import count_shares, list_contradictions, list_roles, parse_devices

WORKERS = "cluster.workers[]"
OF_THE_RUN = frozenset(
    {
        *("hydra", "defaults", "exp_name", "system_envs", "num_nodes", "num_gpus_per_node", "output_dir", "base_dir"),
        *("logging_dir", "checkpoint_config", "resume_from_checkpoint", "track_with", "tracker_kwargs"),
        *("logging_steps", "profiler_output_dir", "model_download_type", "local_rank"),
    }
)
"""Keys of the machine and the run. The job has them in other fields, or the operator sets them."""
LAYOUT = re.compile(r"\.(strategy_name|device_mapping|\w+_parallel_size|ulysses_size|num_gpus_per_worker)$")
"""Settings from which others follow."""
REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def convert_roll(config: dict[str, Any], to: str, file: str) -> Draft:
    """Convert ROLL's config. A command reads the same file from the volume."""
    draft = Draft()
    config = resolve_references(config, config)
    draft.name = str(config.get("exp_name") or draft.name)
    variables = config.get("system_envs") or {}
    apply_environment(draft, {key: str(value) for key, value in variables.items()}, {})
    total = _apply_devices(draft, config)
    for each in list_contradictions(config, total):
        draft.leave_out(f"{each.key} {each.value}", f"{each.message}: {each.fix}")
    for problem in list_problems(config):
        draft.leave_out(problem.key, problem.message)
    if to == "command":
        name = file.rpartition("/")[2].rpartition(".")[0] or file
        launcher = ["python3", PROGRAMS_PATH, LAUNCHER, "--config", f"/mnt/rlt/config/{name}.yaml", "--"]
        command = [*launcher, "python3", ENTRY]
        draft.put("framework", {"type": "command", "workingDirectory": DIRECTORY, "command": command})
        draft.add_variable("PYTHONPATH", DIRECTORY)
        why = "put it into /mnt/rlt/config on the volume of the job, or change the command"
        draft.leave_out(f"the file {file}", why)
        return draft
    if to == "builtin":
        _apply_fields(draft, config)
        return draft
    for key in sorted(OF_THE_RUN & config.keys() & {"track_with", "tracker_kwargs", "resume_from_checkpoint"}):
        draft.leave_out(key, "the operator sets it: use spec.observability, spec.checkpoint")
    kept = {each.what for each in draft.left_out}
    _apply_fields(draft, {key: value for key, value in config.items() if key not in OF_THE_RUN})
    _apply_overrides(draft, config, kept)
    return draft


def resolve_references(node: Any, config: Mapping[str, Any]) -> Any:
    """Replace OmegaConf's references to other keys of the config, such as ${response_length}."""
    if isinstance(node, dict):
        return {key: resolve_references(value, config) for key, value in node.items()}
    if isinstance(node, list):
        return [resolve_references(value, config) for value in node]
    if not isinstance(node, str):
        return node
    if (whole := REFERENCE.fullmatch(node)) and _is_single(_select(config, whole[1])):
        return resolve_references(_select(config, whole[1]), config)
    return REFERENCE.sub(lambda found: str(_select(config, found[1]) or found[0]), node)


def _select(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _is_single(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and REFERENCE.search(value))


def _apply_devices(draft: Draft, config: dict[str, Any]) -> int:
    """Set the pods: num_nodes, or those that the device mappings need, as ROLL computes them. Return the devices."""
    devices = config.get("num_gpus_per_node", 8)
    devices = devices if isinstance(devices, int) and devices > 0 else 8
    placed = [parse_devices(role.get("device_mapping")) or [] for role in list_roles(config).values()]
    needed = max((device + 1 for role in placed for device in role), default=0)
    nodes = config.get("num_nodes")
    nodes = nodes if isinstance(nodes, int) and nodes > 0 else max(1, -(-needed // devices))
    draft.put(f"{WORKERS}.replicas", nodes)
    draft.put(f"{WORKERS}.accelerator.count", devices)
    return nodes * devices


def _apply_fields(draft: Draft, config: dict[str, Any]) -> None:
    values = {}
    for key, value in _flatten({key: each for key, each in config.items() if key not in ("system_envs", "rewards")}):
        if isinstance(value, str) and "${" in value:
            draft.leave_out(f"{key}: {value}", "an interpolation")
        else:
            values[key] = value
    if "rewards" in config:
        draft.leave_out("rewards", "a list of rules, models and functions: set spec.rewards")
    apply_settings(draft, values, load_mapping().roll, {})


def _apply_overrides(draft: Draft, config: dict[str, Any], kept: Collection[str]) -> None:
    """Make it a job of ROLL: its settings come from the fields, and overrides for all that differ from them.

    `kept`: the comments about what is neither.
    """
    if draft.get("algorithm.advEstimator") != "gae":
        draft.spec.get("algorithm", {}).pop("critic", None)
    data = _select(config, "actor_train.data_args") or {}
    draft.put("data.files", _list_files(data) or ["/mnt/rlt/train.jsonl"])
    draft.put("data.promptKey", data.get("messages") or "messages")
    if validated := _list_files(_select(config, "validation.data_args") or {}):
        draft.put("data.valFiles", validated)
    else:
        draft.spec.get("training", {}).pop("validation", None)
    if prompts := _count_mini_batch(config):
        draft.put("training.ppoMiniBatchSize", prompts)
    draft.put("framework", {"type": "roll"})
    draft.left_out[:] = [each for each in draft.left_out if each.what in kept]
    wanted = {key: value for key, value in config.items() if key not in OF_THE_RUN}
    overrides: list[str] = []
    for is_last in (False, True):  # first the strategies and devices, from which sizes and options follow
        draft.put("framework.overrides", overrides)
        rendered = _render(draft)
        if rendered is None:
            return
        differences = list(_list_differences(wanted, rendered))
        overrides += [f"{key}={_write(value)}" for key, value in differences if is_last or LAYOUT.search(key)]
    draft.put("framework.overrides", overrides)
    if not overrides:
        draft.spec["framework"].pop("overrides")


def _list_files(data: Mapping[str, Any]) -> list[str]:
    files = data.get("file_name") or []
    return [files] if isinstance(files, str) else list(files)


def _count_mini_batch(config: dict[str, Any]) -> int | None:
    """The prompts of a mini-batch. None if they are not an integer, or the shares are unknown."""
    role = config.get("actor_train") or {}
    group = config.get("num_return_sequences_in_group", 1)
    arguments = role.get("training_args") or {}
    shares = count_shares(role, len(parse_devices(role.get("device_mapping")) or []))
    sizes = [arguments.get("per_device_train_batch_size", 8), arguments.get("gradient_accumulation_steps", 1)]
    if not shares or not all(isinstance(each, int) and each > 0 for each in [*sizes, group]):
        return None
    prompts, rest = divmod(sizes[0] * sizes[1] * shares, group)
    return prompts if prompts and not rest else None


def _render(draft: Draft) -> dict[str, Any] | None:
    """ROLL's config of the fields so far, without those that ROLL has no setting for. None, with a comment, if the job
    has no model."""
    accelerator = {"resourceName": "nvidia.com/gpu", **draft.spec["cluster"]["workers"][0]["accelerator"]}
    group = {**draft.spec["cluster"]["workers"][0], "accelerator": accelerator}
    completed = add_accelerator_defaults({**draft.spec, "cluster": {**draft.spec["cluster"], "workers": [group]}})
    try:
        spec = RLTrainingJobSpec.model_validate(completed, by_alias=True, by_name=False)
    except ValidationError as error:
        return _drop(draft, [_name_field(each) for each in error.errors()])
    if rejected := [each.field for each in validate_roll_fields(spec)]:
        return _drop(draft, rejected)
    if spec.model is None or spec.data is None:
        draft.leave_out("settings without a field", "they are overrides of a job with spec.model and spec.data")
        return None
    return list_settings(spec, Run("", "", ""))


def _drop(draft: Draft, fields: Iterable[str]) -> dict[str, Any] | None:
    """Drop fields, whose settings become overrides, and render the others."""
    for field in fields:
        node: Any = draft.spec
        *parents, last = re.sub(r"\[\d*\]", "", field).removeprefix("spec.").split(".")
        for part in parents:
            node = node.get(part, {})
            node = node[0] if isinstance(node, list) else node
        if node.pop(last, None) is None:
            raise ConvertError(f"line 1: {field} cannot be converted: use --to command.")
    return _render(draft)


def _name_field(error: Any) -> str:
    """The field of a schema error; of a missing field its block."""
    names = [str(each) for each in error["loc"] if not isinstance(each, int)]
    return ".".join(names[:-1] if error["type"] == "missing" else names)


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
        elif value != given and not (value is None and key not in rendered):
            yield path, value


def _flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        elif value != {}:
            yield f"{prefix}{key}", value


def _write(value: Any) -> str:
    """A value of an override. Text that would be read as another type is quoted."""
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_/$][^'\"\[{]*", value) and value.lower() not in ("true", "false", "null")
        return value if plain else f"'{value}'"
    return json.dumps(value)
