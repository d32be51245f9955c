"""The config of verl, Hydra's YAML, as a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rlt.convert.draft import Draft
from rlt.convert.settings import add_defaults, apply_settings
from rlt_api.frameworks.mapping import find, load_mapping

WORKERS = "cluster.workers[]"
HYDRA_KEYS = ("defaults", "hydra")


def convert_hydra(config: dict[str, Any], to: str) -> Draft:
    """Convert verl's config: its values as overrides of the command, or as fields of a builtin job."""
    draft = Draft()
    settings = load_mapping().verl
    values = {}
    for key, value in _flatten({key: each for key, each in config.items() if key not in HYDRA_KEYS}):
        if isinstance(value, str) and "${" in value:
            draft.leave_out(f"{key}: {value}", "an interpolation: verl's own config computes it")
        elif not key.endswith("_target_"):
            values[key] = value
    for key in HYDRA_KEYS:
        if key in config:
            draft.leave_out(key, "it belongs to Hydra, not to the training")
    trainer = config.get("trainer") or {}
    draft.name = str(trainer.get("experiment_name") or draft.name)
    _apply_devices(draft, trainer.get("nnodes", 1), trainer.get("n_gpus_per_node", 8))
    if to == "builtin":
        apply_settings(draft, add_defaults(values, settings), settings, {})
    else:
        overrides = [f"{'' if _is_known(key) else '++'}{key}={_write(value)}" for key, value in values.items()]
        command = ["python3", "-m", "verl.trainer.main_ppo", *overrides]
        draft.put("framework", {"type": "command", "command": command})
    return draft


def _apply_devices(draft: Draft, nodes: Any, devices: Any) -> None:
    if isinstance(nodes, int):
        draft.put(f"{WORKERS}.replicas", nodes)
    if isinstance(devices, int):
        draft.put(f"{WORKERS}.accelerator.count", devices)


def _flatten(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{path}.")
        elif value != {}:
            yield path, value


def _is_known(key: str) -> bool:
    found = find(key, load_mapping().verl)
    return found is not None and found.in_config and not found.is_group


def _write(value: Any) -> str:
    """A value in Hydra's syntax of overrides."""
    if isinstance(value, list):
        return f"[{','.join(map(_write, value))}]"
    if isinstance(value, str):
        plain = value and not set(value) & set(" ,[]{}()'\"=:$\\#")
        return value if plain or value.startswith("/") else json.dumps(value)
    return json.dumps(value)
