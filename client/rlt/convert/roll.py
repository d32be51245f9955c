"""ROLL's configs as jobs: of which pipeline they are, and a command that reads the same file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.environment import apply_environment
from rlt.convert.framework_configs import name_file
from rlt.convert.reader import show
from rlt.convert.roll_job import build_builtin_job, build_roll_job
from rlt_api.frameworks.roll.keys import list_problems
from rlt_api.frameworks.roll.settings import DIRECTORY, LAUNCHER
from rlt_api.spec.training_config import PROGRAMS_PATH
from rlt_pod.command.roll_layout import list_contradictions, list_device_contradictions, list_roles, parse_devices

WORKERS = "cluster.workers[]"
BLOCKS = frozenset({"actor_train", "actor_infer", "rollout_batch_size", "pretrain"})
RLVR = "rlvr"
PIPELINES: Mapping[str, tuple[str, ...]] = {
    "agentic": ("train_env_manager", "val_env_manager", "custom_envs", "env_manager_cls"),
    "onpolicy_distill": ("student_train", "student_infer"),
    "distill": ("student", "teacher", "student_pretrain", "teacher_pretrain"),
    "sft": ("sft_train",),
    "dpo": ("chosen_key", "rejected_key", "ipo"),
}
"""Name of a pipeline, as in examples/start_NAME_pipeline.py -> keys that it alone has (roll/pipeline/*/*_config.py)."""
VISION = re.compile(r"[-_.](VL|Omni)([-_.]|$)", re.IGNORECASE)
"""Name of a model that reads images. RLVR and distillation have separate pipelines for them."""
IMAGES = {"freeze_module_prefix", "image_max_pixels", "image_min_pixels"}
"""Settings of model_args and data_args that models for images alone have."""
ROLE_KEYS = {"strategy_args", "device_mapping", "training_args"}
VENDORS = {
    "HSA_": "amd.com/gpu", "HIP_": "amd.com/gpu", "ROCR_": "amd.com/gpu", "ASCEND_": "huawei.com/Ascend910",
    "HCCL_": "huawei.com/Ascend910",
}  # fmt: skip
"""Beginning of a variable's name -> resource of the device plugin that its vendor has."""
REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def is_roll(config: Mapping[str, Any]) -> bool:
    """Whether a document is a config of ROLL."""
    return find_pipeline(config) != RLVR or len(BLOCKS & config.keys()) > 1


def find_pipeline(config: Mapping[str, Any]) -> str:
    """The pipeline by the keys of a config."""
    found = (name for name, keys in PIPELINES.items() if set(keys) & config.keys() and _has_roles(config))
    pipeline = next(found, RLVR)
    if pipeline == "agentic" and "strategy_args" not in _get_role(config, "actor_train"):
        return "agentic_rollout"
    return f"{pipeline}_vl" if pipeline in (RLVR, "distill") and _reads_images(config) else pipeline


def _get_role(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    role = config.get(name)
    return role if isinstance(role, dict) else {}


def _reads_images(config: Mapping[str, Any]) -> bool:
    """Whether the model reads images, by its name and the settings of the trained role."""
    names = (config.get("pretrain"), config.get("student_pretrain"))
    roles = [_get_role(config, name) for name in ("actor_train", "student")]
    given = {key for role in roles for part in ("model_args", "data_args") for key in _get_role(role, part)}
    return bool(IMAGES & given) or any(VISION.search(str(name)) for name in names)


def convert_roll(draft: Draft, config: dict[str, Any], file: str, to: str) -> None:
    """Convert ROLL's config. A command reads the same file from the volume."""
    config = resolve_references(config, config)
    pipeline = find_pipeline(config)
    if to != "command" and pipeline != RLVR:
        raise ConvertError(
            f"line 1: {file} is a config of ROLL's pipeline {pipeline}, and the fields of a job describe "
            "the pipeline rlvr alone: use --to command."
        )
    draft.name = str(config.get("exp_name") or draft.name)
    _apply_variables(draft, config)
    total = _apply_devices(draft, config)
    check = list_contradictions if pipeline == RLVR else list_device_contradictions
    for each in check(config, total):
        why = f"{each.message}: {each.fix}"
        draft.leave_out(f"{each.key} {each.value}", why, draft.find_line(each.key))
    for problem in list_problems(config) if pipeline == RLVR else ():
        given = show(_select(config, problem.key))
        why = f"{problem.message}: {problem.fix}" if problem.fix else problem.message
        draft.leave_out(f"{problem.key} {given}", why, draft.find_line(problem.key))
    if to == "command":
        launcher = ["python3", PROGRAMS_PATH, LAUNCHER, "--config", name_file(draft, file), "--"]
        program = f"examples/start_{pipeline}_pipeline.py"
        command = [*launcher, "python3", program]
        draft.leave_out(f"the program {program}", f"ROLL's for the keys of this config, in {DIRECTORY} of the image")
        draft.put("framework", {"type": "command", "workingDirectory": DIRECTORY, "command": command})
        draft.add_variable("PYTHONPATH", DIRECTORY)
        if "defaults" in config:
            why = "they are relative to ROLL's examples: keep the file there, or copy them beside it"
            draft.leave_out(f"defaults {config['defaults']}", why, draft.find_line("defaults"))
    elif to == "builtin":
        build_builtin_job(draft, config)
    else:
        build_roll_job(draft, config)


def resolve_references(node: Any, config: Mapping[str, Any]) -> Any:
    """Replace OmegaConf's references to other keys of the config, such as ${response_length}."""
    if isinstance(node, dict):
        return {key: resolve_references(value, config) for key, value in node.items()}
    if isinstance(node, list):
        return [resolve_references(value, config) for value in node]
    if not isinstance(node, str):
        return node
    if (whole := REFERENCE.fullmatch(node)) and _is_single(_select(config, whole[1])):
        return resolve_references(_select(config, whole[1]), _without(config, whole[1]))
    return REFERENCE.sub(lambda found: _show_single(_select(config, found[1]), found[0]), node)


def _select(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node


def _without(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The config without a key at its top, so that a reference to itself ends."""
    return {name: value for name, value in config.items() if name != key.partition(".")[0]}


def _is_single(value: Any) -> bool:
    return value is not None and not (isinstance(value, str) and REFERENCE.search(value))


def _show_single(value: Any, text: str) -> str:
    return str(value) if isinstance(value, str | int | float) and not REFERENCE.search(str(value)) else text


def _has_roles(config: Mapping[str, Any]) -> bool:
    return any(isinstance(role, dict) and ROLE_KEYS & role.keys() for role in config.values())


def _list_mappings(config: Mapping[str, Any]) -> Iterator[Any]:
    """The device mappings of all roles, also of rewards and of other pipelines."""
    for role in [*list_roles(config).values(), *config.values()]:
        if isinstance(role, dict):
            yield role.get("device_mapping")


def _apply_variables(draft: Draft, config: Mapping[str, Any]) -> None:
    variables = config.get("system_envs")
    if isinstance(variables, dict):
        lines = {str(key): draft.find_line(f"system_envs.{key}") or 0 for key in variables}
        apply_environment(draft, {str(key): str(value) for key, value in variables.items()}, lines)


def _apply_devices(draft: Draft, config: Mapping[str, Any]) -> int:
    """Set the pods: num_nodes, or those that the device mappings need, as ROLL computes them. Return the devices."""
    devices = config.get("num_gpus_per_node", 8)
    devices = devices if isinstance(devices, int) and devices > 0 else 8
    placed = [parse_devices(mapping) or [] for mapping in _list_mappings(config)]
    needed = max((device + 1 for role in placed for device in role), default=0)
    nodes = config.get("num_nodes")
    nodes = nodes if isinstance(nodes, int) and nodes > 0 else max(1, -(-needed // devices))
    draft.put(f"{WORKERS}.replicas", nodes)
    draft.put(f"{WORKERS}.accelerator.count", devices)
    variables = config.get("system_envs")
    for name, value in variables.items() if isinstance(variables, dict) else ():
        for beginning, resource in VENDORS.items():
            if str(name).startswith(beginning) and value:
                draft.put(f"{WORKERS}.accelerator.resourceName", resource)
    return nodes * devices
