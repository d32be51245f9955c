"""Configs of NeMo-RL, SkyRL and TRL: a job that runs the program with the same file, or the same settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rlt.convert.draft import ConvertError, Draft
from rlt.convert.reader import Json, Reader, flatten, write_number
from rlt_api.frameworks.arguments import parse_value
from rlt_api.frameworks.known_programs import find_program, get_record

WORKERS = "cluster.workers[]"
CONFIGS = "/mnt/rlt/config"
NEMO_BLOCKS = ("grpo", "ppo", "distillation", "dpo", "rm", "sft")
"""Blocks of NeMo-RL's configs. The program is examples/run_BLOCK.py (github.com/NVIDIA-NeMo/RL)."""
NEMO_KEYS = {"policy", "cluster", "loss_fn", "checkpointing", "logger", "data", "data_plane"}
NEMO_BASE = re.compile(r"((vlm_)?(grpo|sft)|ppo|distillation|dpo|rm|dapo|prorl)[\w.-]*\.yaml")
"""Name of the config that a recipe extends."""
NEMO_ALGORITHMS = {"dapo": "grpo", "prorl": "grpo"}
NEMO_DIRECTORY = "/opt/nemo-rl"
"""The sources in NeMo-RL's image (docker/Dockerfile)."""
SKYRL_PROGRAM = "skyrl_train.entrypoints.main_base"
TRL_COMMANDS = {
    "grpo": {"num_generations", "reward_funcs", "max_completion_length"},
    "dpo": {"rpo_alpha", "precompute_ref_log_probs", "max_prompt_length", "ref_model"},
    "sft": {"packing", "assistant_only_loss", "dataset_text_field", "max_seq_length", "completion_only_loss"},
}
"""Command of trl -> settings that it alone has (trl/trainer/*_config.py)."""


def find_framework(config: Mapping[str, Any]) -> str | None:
    """The framework whose config it is."""
    if _find_nemo(config):
        return "NeMo-RL"
    if isinstance(config.get("trainer"), dict) and isinstance(config.get("generator"), dict):
        return "SkyRL"
    if "model_name_or_path" in config:
        return "TRL"
    return None


def convert_framework_config(draft: Draft, config: Json, file: str, to: str) -> None:
    """Convert a config by its framework."""
    {"NeMo-RL": _convert_nemo, "SkyRL": _convert_skyrl, "TRL": _convert_trl}[str(find_framework(config))](
        draft, config, file
    )


def name_file(draft: Draft, file: str) -> str:
    """The path of the config on the volume of the job, with a comment that it must be put there."""
    path = f"{CONFIGS}/{PurePath(file).stem or 'config'}.yaml"
    draft.leave_out(f"the file {file}", f"the program reads it: put it into {CONFIGS} on the volume of the job")
    return path


def _find_nemo(config: Mapping[str, Any]) -> str | None:
    """The program of NeMo-RL for a config: by its block, or by the config that it extends."""
    given = config.get("defaults")
    bases = [str(each).rpartition("/")[2] for each in (given if isinstance(given, list) else [given])]
    found = [match[1] for match in map(NEMO_BASE.fullmatch, bases) if match]
    blocks = [block for block in NEMO_BLOCKS if isinstance(config.get(block), dict)]
    names = [*(name for name in found if name.startswith("vlm_")), *blocks, *found]
    if not names or not NEMO_KEYS & config.keys():
        return None
    return f"examples/run_{NEMO_ALGORITHMS.get(names[0], names[0])}.py"


def _convert_nemo(draft: Draft, config: Json, file: str) -> None:
    program = str(_find_nemo(config))
    cluster = Reader(draft, config.get("cluster"), "cluster")
    _set_devices(draft, cluster.take("num_nodes"), cluster.take("gpus_per_node"))
    if "defaults" in config:
        draft.leave_out(
            f"defaults {config['defaults']}",
            f"it is relative to the file: put it beside, in {CONFIGS}",
            draft.find_line("defaults"),
        )
    command = ["python3", program, "--config", name_file(draft, file)]
    draft.put("framework", {"type": "command", "workingDirectory": NEMO_DIRECTORY, "command": command})
    draft.leave_out(f"the program {program}", f"NeMo-RL's for this config, in {NEMO_DIRECTORY} of its image")


def _convert_skyrl(draft: Draft, config: Json, file: str) -> None:
    trainer = config["trainer"]
    draft.name = str(trainer.get("run_name") or draft.name)
    overrides = []
    for key, value in flatten({key: each for key, each in config.items() if key not in ("defaults", "hydra")}):
        if isinstance(value, str) and "${" in value:
            why = "an interpolation: SkyRL's own config computes it"
            draft.leave_out(f"{key}: {value}", why, draft.find_line(key))
        else:
            overrides.append(f"++{key}={write_override(value)}")
    for key in ("defaults", "hydra"):
        if key in config:
            draft.leave_out(f"{key} {json.dumps(config[key])}", "it belongs to Hydra", draft.find_line(key))
    command = ["python3", "-m", SKYRL_PROGRAM, *overrides]
    draft.put("framework", {"type": "command", "command": command})
    program = find_program(command)
    demand = get_record(program).count_devices(program) if program else None
    if demand:
        _set_devices(draft, *demand.divide())
    why = "SkyRL's training with a reward of skyrl_gym; other examples have other programs"
    draft.leave_out(f"the program {SKYRL_PROGRAM}", why)


def _convert_trl(draft: Draft, config: Json, file: str) -> None:
    matches = [name for name, settings in TRL_COMMANDS.items() if settings & config.keys()]
    if len(matches) != 1:
        raise ConvertError(
            "line 1: it is a config of TRL (model_name_or_path) that does not name its program, grpo, dpo or sft: pass "
            "the command that reads it, such as trl grpo --config FILE."
        )
    draft.name = str(config.get("run_name") or draft.name)
    command = ["trl", matches[0], "--config", name_file(draft, file)]
    draft.put("framework", {"type": "command", "command": command})
    draft.put(f"{WORKERS}.replicas", 1)
    draft.leave_out(f"the program trl {matches[0]}", "by the settings of the config; several devices need accelerate")


def _set_devices(draft: Draft, nodes: Any, devices: Any) -> None:
    if nodes is not None:
        draft.put(f"{WORKERS}.replicas", nodes)
    if devices:
        draft.put(f"{WORKERS}.accelerator.count", devices)


def write_override(value: Any) -> str:
    """A value in Hydra's syntax of overrides."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}: {write_override(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(write_override, value))}]"
    if isinstance(value, str):
        plain = value and not set(value) & set(" ,[]{}()'\"=:$\\#") and isinstance(parse_value(value), str)
        return value if plain or value.startswith("/") else json.dumps(value, ensure_ascii=False)
    return write_number(value) if isinstance(value, float) else json.dumps(value)
