"""verl's trainers, as programs of command jobs."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding
from rlt_api.frameworks.arguments import Argument, Program, parse_hydra, read_config_options
from rlt_api.frameworks.command.devices import DEVICES, NODES, read_verl_number, validate_verl_devices
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, by_module
from rlt_api.frameworks.verl.argument_warnings import warn_arguments
from rlt_api.frameworks.verl.arguments import validate_verl_arguments
from rlt_api.frameworks.verl.demand import ROLLOUT_DEVICES, ROLLOUT_NODES
from rlt_api.frameworks.verl.engine import build_engine, uses_bfloat16
from rlt_api.frameworks.verl.field_job import validate_command_memory
from rlt_api.frameworks.verl.trial import shorten
from rlt_api.spec.job_spec import RLTrainingJobSpec

SEPARATE = ("fully_async_policy.fully_async_main", "one_step_off_policy.main_ppo")
"""The modules of verl.experimental, earlier recipe, with their own configs and separate devices for the engines."""


CONFIGS = {"ppo_trainer": "dp", "ppo_megatron_trainer": "megatron"}
"""Config of main_ppo -> the engine that it selects (verl/trainer/config)."""


def read_call(call: Call) -> Program:
    """Read the arguments of main_ppo, or of an experimental trainer."""
    separate = by_module(*SEPARATE)([call.entry], 0) is not None
    config = read_config_options(call.words)
    index, name = config.get("name", (0, "ppo_trainer"))
    engine = CONFIGS.get(name.strip("'\"").removesuffix(".yaml"))
    is_shipped = engine and "folder" not in config and config.get("path", (0, "config"))[1] == "config"
    selected = (Argument("model_engine", engine, index),) if engine and is_shipped and "name" in config else ()
    arguments = (*selected, *parse_hydra(call.words))
    return Program("verl", arguments, own_config=separate or not is_shipped, separate=separate)


def count_devices(program: Program) -> Demand | None:
    """Count the accelerators: trainer.nnodes times trainer.n_gpus_per_node, plus the separate engines."""
    nodes = read_verl_number(program, NODES)
    devices = read_verl_number(program, DEVICES)
    if not nodes or not devices or program.values.get("trainer.device", "cuda") != "cuda":
        return None
    engines = 0
    if program.separate:
        engine_nodes = read_verl_number(program, ROLLOUT_NODES)
        engine_devices = read_verl_number(program, ROLLOUT_DEVICES)
        engines = (engine_nodes or 0) * (engine_devices or 0)
    return Demand(nodes * devices, engines, devices, (DEVICES, NODES))


def validate(program: Program, spec: RLTrainingJobSpec) -> Iterator[Finding]:
    """Validate the devices, and what is certain to fail."""
    yield from validate_verl_devices(program, spec)
    yield from validate_verl_arguments(program, spec)
    yield from validate_command_memory(program, spec)


VERL = KnownProgram(
    name="verl",
    title="verl",
    recognize=by_module("verl.trainer.main_ppo", *SEPARATE),
    read=read_call,
    count_devices=count_devices,
    models=(
        *("actor_rollout_ref.model.path", "critic.model.path"),
        *("reward.reward_model.model_path", "reward_model.model.path"),
    ),
    prompts=("data.train_files", "data.val_files"),
    checkpoints="trainer.default_local_dir",
    resume={"trainer.resume_mode": "auto"},
    rollouts="trainer.rollout_data_dir",
    chat_template="actor_rollout_ref.model.custom_chat_template",
    uses_bfloat16=uses_bfloat16,
    validate=validate,
    warn=warn_arguments,
    build_engine=build_engine,
    shorten=shorten,
)
