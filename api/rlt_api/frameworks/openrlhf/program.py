"""OpenRLHF's train_ppo_ray, as a program of command jobs."""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program, parse_flags
from rlt_api.frameworks.command.devices import ACTOR, count_openrlhf_engines, validate_openrlhf_devices
from rlt_api.frameworks.command.memory import MemoryArguments
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, all_of, all_rules, by_module
from rlt_api.frameworks.openrlhf.engine import SHARE, build_engine
from rlt_api.frameworks.openrlhf.options import read_integer
from rlt_api.frameworks.openrlhf.trial import shorten
from rlt_api.frameworks.openrlhf.warnings import warn_arguments


def read_call(call: Call) -> Program:
    """Read the options of train_ppo_ray."""
    return Program("openrlhf", tuple(parse_flags(call.words)))


def count_devices(program: Program) -> Demand | None:
    """Count the accelerators of the actor, and of the engines if they have their own."""
    nodes, devices = (read_integer(program, name) for name in ACTOR)
    if not nodes or not devices:
        return None
    return Demand(nodes * devices, count_openrlhf_engines(program), devices, tuple(f"--{name}" for name in ACTOR))


MEMORY = MemoryArguments(
    count_devices=count_devices,
    models=("actor_model_name_or_path", "pretrain"),
    share="vllm_gpu_memory_utilization",
    default_share=SHARE,
    engines="vllm_num_engines",
    devices_of_engine="vllm_tensor_parallel_size",
    limit="",
    lengths=("data_max_len",),
    reducing=("ds_adam_offload", "adam_offload", "ds_lora_rank", "lora_rank", "ds_load_in_4bit", "load_in_4bit"),
)
OPENRLHF = KnownProgram(
    name="openrlhf",
    title="OpenRLHF",
    recognize=by_module("openrlhf.cli.train_ppo_ray"),
    read=read_call,
    count_devices=count_devices,
    models=(
        *("actor_model_name_or_path", "critic_model_name_or_path", "reward_model_name_or_path"),
        *("pretrain", "critic_pretrain", "reward_pretrain"),
    ),
    prompts=("data_prompt_dataset", "eval_dataset", "prompt_data"),
    other_hubs=("use_ms",),
    checkpoints="ckpt_path",
    resume={"ckpt_load_enable": "true"},
    validate=all_rules(validate_openrlhf_devices, MEMORY.validate),
    warn=all_of(warn_arguments, MEMORY.warn),
    build_engine=build_engine,
    shorten=shorten,
)
