"""Level full of the preflight checks with framework.type roll: the engine of ROLL's config, and its first steps. Pure.

ROLL takes its settings from a file alone, and saves no checkpoint after its first step (do_checkpoint in
roll/pipeline/base_pipeline.py, ROLL 0.3.0): the first start makes two steps, and the start that resumes a third one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from rlt_api.frameworks.command.devices import count_devices
from rlt_api.frameworks.preflight import reject_engine
from rlt_api.frameworks.roll.roles import DTYPES
from rlt_api.frameworks.roll.settings import RESUME_VARIABLE, build_config, build_launch, get_directory
from rlt_api.frameworks.roll.values import Settings, get_block, merge
from rlt_api.frameworks.run import Run
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_pod.command.roll_layout import (
    DEFAULTS,
    ENGINES,
    TRAINED,
    list_contradictions,
    read_parallel_sizes,
    read_strategy,
)
from rlt_pod.preflight.expected import Engine, NotPossible, Trial

RESUME = f"${{oc.decode:${{oc.env:{RESUME_VARIABLE}}}}}"
"""The checkpoint that the launcher has found. Without one, the config cannot be read, and the start fails."""
STARTS: Mapping[str, Settings] = {
    "roll-steps.yaml": {"max_steps": 2, "resume_from_checkpoint": False},
    "roll-resume.yaml": {"max_steps": 3, "resume_from_checkpoint": RESUME},
}
"""Config in CONFIG_DIRECTORY -> what distinguishes both starts."""
WITHOUT = ("validation", "tracker_kwargs")
"""Blocks that the steps do not need."""
OPTIONS = ("max_model_len", "gpu_memory_utilization", "enforce_eager", "context_length", "mem_fraction_static")
"""Options of the engine that decide whether it starts: names of vllm.LLM and sglang.Engine, as in ROLL's config."""


def build_engine(spec: RLTrainingJobSpec, command: list[str]) -> Engine | NotPossible:
    """Build the engine of a valid spec, or the reason why the check is not possible."""
    config = build_config(spec, Run("", "", ""))
    role = get_block(config, "actor_infer")
    name, options = read_strategy(role)
    if name not in ENGINES:
        return reject_engine(f"The engine {name} is neither {' nor '.join(ENGINES)}.")
    size, *stages = read_parallel_sizes(role).values()
    if any(each > 1 for each in stages):
        return reject_engine("Its pipeline parallel size is above 1.")
    dtype = {short: long for long, short in DTYPES.items()}.get(str(get_block(role, "model_args").get("dtype")), "auto")
    kept = {key: options[key] for key in OPTIONS if options.get(key) is not None}
    model = str(config["pretrain"]).replace("\\${", "${")
    return Engine(name, model, size, {**kept, "dtype": dtype, "trust_remote_code": True})


def build_trial(spec: RLTrainingJobSpec, command: list[str], directory: str) -> Trial:
    """Build the trial in `directory`, the folder of the run that dump_trial_configs gets."""
    first, second = STARTS
    checkpoints = Run("", "", directory).checkpoints
    return Trial(build_launch(first, None), build_launch(second, checkpoints), directory, get_directory(spec))


def dump_trial_configs(spec: RLTrainingJobSpec, run: Run) -> dict[str, str]:
    """Write the configs of both starts: name of the file -> its text. `run`: the trial's."""
    config = _shrink_batch(build_config(spec, run), count_devices(spec.cluster.workers))
    common: Settings = {"save_steps": 1, "track_with": "stdout", "critic_warmup": 0}
    kept = {key: value for key, value in merge(config, common).items() if key not in WITHOUT}
    return {name: json.dumps(merge(kept, changes), indent=2) + "\n" for name, changes in STARTS.items()}


def _shrink_batch(config: Settings, devices: int) -> Settings:
    """The smallest number of prompts that all roles can divide, with one micro-batch for each update."""
    one: JsonValue = {"training_args": {"gradient_accumulation_steps": 1}}
    single = {role: one for role in TRAINED if role in config}
    given = config.get("rollout_batch_size", DEFAULTS["rollout_batch_size"])
    for prompts in range(1, given if isinstance(given, int) else 1):
        changed = merge(config, {"rollout_batch_size": prompts, **single})
        if next(list_contradictions(changed, devices), None) is None:
            return changed
    return config
