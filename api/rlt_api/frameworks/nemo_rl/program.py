"""The examples of NeMo-RL, as programs of command jobs (examples/run_*.py, August 2026).

They read a YAML file, and overrides as KEY=VALUE after it.
"""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program, parse_hydra
from rlt_api.frameworks.command.demand import read_number, require_devices
from rlt_api.frameworks.key_table import KeyCheck, read_setting
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, any_of, by_script
from rlt_api.frameworks.nemo_rl.trial import shorten

SCRIPT = r"(?:.*/)?run_(?:grpo|ppo|dpo|sft|rm|distillation|vlm_grpo|vlm_sft|xtoken)\w*\.py"
OPTIONS = ("--config", "cluster.num_nodes", "cluster.gpus_per_node", "policy.model_name", "checkpointing.enabled")
"""Arguments by which such a script is NeMo-RL's."""
EXAMPLES = rf"(?:.*/)?examples/(?:\w+/)?{SCRIPT.removeprefix('(?:.*/)?')}"
NODES = "cluster.num_nodes"
DEVICES = "cluster.gpus_per_node"
KEYS = KeyCheck("nemo_rl/keys.toml", "ends with an error for a key that the config does not have", read_setting)


def read_call(call: Call) -> Program:
    """Read the overrides. Another config than the default determines the keys that are not given."""
    own_config = any(word.partition("=")[0] == "--config" for _, word in call.words)
    part = next((each for each in ("grpo", "ppo", "sft", "dpo", "rm") if f"_{each}" in call.entry), "")
    return Program("nemo-rl", parse_hydra(call.words), own_config=own_config, part=part)


def count_devices(program: Program) -> Demand | None:
    """Count the accelerators of the cluster, which training and engines divide. The default config has one."""
    default = None if program.own_config else 1
    nodes = read_number(program, NODES, default)
    devices = read_number(program, DEVICES, default)
    if nodes is None or devices is None:
        return None
    return Demand(nodes * devices, per_pod=devices, keys=(DEVICES, NODES))


NEMO_RL = KnownProgram(
    name="nemo-rl",
    title="NeMo-RL",
    recognize=any_of(by_script(EXAMPLES), by_script(SCRIPT, *OPTIONS)),
    read=read_call,
    count_devices=count_devices,
    models=("policy.model_name",),
    checkpoints="checkpointing.checkpoint_dir",
    validate=require_devices(count_devices, "NeMo-RL"),
    warn=KEYS.warn,
    shorten=shorten,
)
