"""SkyRL's trainers, as programs of command jobs (skyrl 0.3: skyrl/train/entrypoints; earlier: skyrl_train).

The arguments are KEY=VALUE, of the classes in skyrl/train/config/config.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from rlt_api.frameworks.arguments import Program, parse_hydra
from rlt_api.frameworks.command.demand import read_number, require_devices
from rlt_api.frameworks.key_table import KeyCheck, read_setting
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, any_of, by_module, by_script
from rlt_api.frameworks.skyrl.trial import shorten
from rlt_api.spec.job_spec import RLTrainingJobSpec

PLACEMENT = "trainer.placement"
DEVICES = f"{PLACEMENT}.policy_num_gpus_per_node"
NODES = f"{PLACEMENT}.policy_num_nodes"
ENGINES = ("generator.inference_engine.num_engines", "generator.num_inference_engines")
"""The number of engines in 0.3 and before."""
SIZES = (
    ("generator.inference_engine.tensor_parallel_size", "generator.inference_engine_tensor_parallel_size"),
    ("generator.inference_engine.pipeline_parallel_size", "generator.inference_engine_pipeline_parallel_size"),
    ("generator.inference_engine.data_parallel_size", "generator.inference_engine_data_parallel_size"),
)
"""The sizes that multiply to the accelerators of an engine, in 0.3 and before."""

MAIN = "skyrl.train.entrypoints.main_base"
"""The program of 0.3. Earlier versions have other keys, and other programs can add some."""
OTHER_PROGRAM = "trainer.override_entrypoint"
"""The key that starts another program, with keys that it adds."""
KEYS = KeyCheck("skyrl/keys.toml", "ends with an error", read_setting)
LOCAL = ("generator.inference_engine.run_engines_locally", "generator.run_engines_locally")
"""false: the engines run elsewhere. In 0.3 and before."""


def read_call(call: Call) -> Program:
    """Read the settings."""
    own_config = by_module(MAIN)([call.entry], 0) is None
    return Program("skyrl", parse_hydra(call.words), own_config=own_config)


def count_devices(program: Program) -> Demand | None:
    """Count the accelerators of the policy. With colocate_all=false, add the other roles and the engines.

    The default of policy_num_gpus_per_node differs between versions, so that it must be given.
    """
    per_node = read_number(program, DEVICES, None)
    policy = _count_role(program, "policy")
    engines = prod(_read_either(program, names) for names in (ENGINES, *SIZES))
    if per_node is None or policy is None:
        return None
    if program.values.get(f"{PLACEMENT}.colocate_all", True) is not False:
        return Demand(policy, per_pod=per_node, keys=(DEVICES, NODES))
    if any(program.values.get(key) is False for key in LOCAL):
        engines = 0
    training = policy
    if program.values.get(f"{PLACEMENT}.colocate_policy_ref", True) is False:
        training += _count_role(program, "ref") or 0
    if program.values.get("trainer.critic.model.path"):
        training += _count_role(program, "critic") or 0
    return Demand(training, engines, per_node, (DEVICES, NODES, ENGINES[0]))


def warn(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings about keys that 0.3 does not have."""
    if not program.own_config and OTHER_PROGRAM not in program.given:
        yield from KEYS.warn(program, spec)


def _count_role(program: Program, role: str) -> int | None:
    nodes = read_number(program, f"{PLACEMENT}.{role}_num_nodes", 1)
    devices = read_number(program, f"{PLACEMENT}.{role}_num_gpus_per_node", None)
    return nodes * devices if nodes and devices else None


def _read_either(program: Program, names: tuple[str, str]) -> int:
    return read_number(program, names[0], None) or read_number(program, names[1], None) or 1


SKYRL = KnownProgram(
    name="skyrl",
    title="SkyRL",
    recognize=any_of(
        by_module(MAIN, "skyrl_train.entrypoints.main_base"),
        by_script(r"(?:.*[/.])?main_\w+(?:\.py)?", DEVICES, f"{PLACEMENT}.colocate_all", *ENGINES),
    ),
    read=read_call,
    count_devices=count_devices,
    models=("trainer.policy.model.path", "trainer.critic.model.path", "trainer.ref.model.path"),
    prompts=("data.train_data", "data.val_data"),
    checkpoints="trainer.ckpt_path",
    resume={"trainer.resume_mode": "latest"},
    validate=require_devices(count_devices, "SkyRL"),
    warn=warn,
    shorten=shorten,
)
