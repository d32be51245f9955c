"""The config of verl, Hydra's YAML, as a job."""

from __future__ import annotations

import re

from rlt.convert.draft import Draft
from rlt.convert.framework_configs import write_override
from rlt.convert.reader import Json, flatten, show
from rlt.convert.settings import add_defaults, apply_settings, complete_suite
from rlt_api.frameworks.mapping import find, load_mapping

WORKERS = "cluster.workers[]"
HYDRA_KEYS = ("defaults", "hydra")
TRAINER = re.compile(r"ppo_\w*trainer")
"""Name of one of main_ppo's configs (verl/trainer/config)."""
DEFAULT_TRAINER = "ppo_trainer"


def is_verl(document: Json) -> bool:
    """Whether a document is a config of verl's main_ppo."""
    return "actor_rollout_ref" in document or {"algorithm", "trainer"} <= document.keys()


def convert_hydra(draft: Draft, config: Json, file: str, to: str) -> None:
    """Convert verl's config: its values as overrides of the command, or as fields of a builtin job."""
    settings = load_mapping().verl
    values = {}
    classes = []
    for key, value in flatten({key: each for key, each in config.items() if key not in HYDRA_KEYS}):
        if isinstance(value, str) and "${" in value:
            why = "an interpolation: verl's own config computes it"
            draft.leave_out(f"{key}: {value}", why, draft.find_line(key))
        elif key.endswith("_target_"):
            classes.append(f"{key}: {value}")
        elif value != {}:
            values[key] = value
    if classes:
        draft.leave_out(", ".join(classes), "verl's own config has its classes")
    for key in HYDRA_KEYS:
        if key in config:
            draft.leave_out(f"{key} {show(config[key])}", "it belongs to Hydra", draft.find_line(key))
    draft.name = str(values.get("trainer.experiment_name") or draft.name)
    _apply_devices(draft, values)
    if to == "builtin":
        apply_settings(draft, add_defaults(values, settings), settings, draft.lines)
        complete_suite(draft)
    else:
        overrides = [f"{'' if _is_known(key) else '++'}{key}={write_override(value)}" for key, value in values.items()]
        unknown = [key for key in values if find(key, settings) is None]
        if unknown:
            why = f"no keys of verl {load_mapping().verl_version}: ++ adds them, if the image's version reads them"
            draft.leave_out(", ".join(unknown), why, draft.find_line(unknown[0]))
        command = ["python3", "-m", "verl.trainer.main_ppo", *_choose_config(config), *overrides]
        draft.put("framework", {"type": "command", "command": command})


def _apply_devices(draft: Draft, values: Json) -> None:
    nodes = values.get("trainer.nnodes", 1)
    devices = values.get("trainer.n_gpus_per_node", 8)
    device = values.get("trainer.device", "cuda")
    if isinstance(nodes, int):
        draft.put(f"{WORKERS}.replicas", nodes)
    if isinstance(devices, int) and device != "cpu":
        draft.put(f"{WORKERS}.accelerator.count", devices)
    if device == "npu":
        draft.put(f"{WORKERS}.accelerator.resourceName", "huawei.com/Ascend910")


def _choose_config(config: Json) -> list[str]:
    """The option for verl's config that this one extends, if it is not main_ppo's own."""
    given = config.get("defaults")
    names = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    others = [each for each in names if TRAINER.fullmatch(each) and each != DEFAULT_TRAINER]
    return [f"--config-name={others[0]}"] if others else []


def _is_known(key: str) -> bool:
    found = find(key, load_mapping().verl)
    return found is not None and found.in_config and not found.is_group
