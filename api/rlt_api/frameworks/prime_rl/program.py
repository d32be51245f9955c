"""prime-rl's entry points, as programs of command jobs (packages/prime-rl-configs, August 2026).

rl starts trainer, orchestrator and inference on its own machine. The settings are TOML files after @, and options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlt_api.frameworks.arguments import Argument, Program, parse_flags
from rlt_api.frameworks.command.demand import (
    read_launcher_devices,
    read_number,
    require_devices,
    warn_on_head,
    warn_without_resume,
)
from rlt_api.frameworks.command.devices import COMMAND
from rlt_api.frameworks.key_table import KeyCheck, read_option
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, any_of, by_module
from rlt_api.frameworks.prime_rl.trial import shorten
from rlt_api.spec.job_spec import RLTrainingJobSpec

NAMES = ("rl", "sft", "trainer", "orchestrator", "inference")
"""The commands that prime-rl installs and a job uses (project.scripts)."""
RUNNERS = ("run", "--no-sync", "--locked", "--frozen")
"""Words before the command: uv run, with its options."""
MODULES = ("prime_rl.entrypoints.rl", "prime_rl.rl", "prime_rl.entrypoints.sft")
TRAINERS = ("prime_rl.trainer.rl.train", "prime_rl.trainer.sft.train")
"""Modules that torchrun starts."""
TRAIN = "deployment_num_train_gpus"
INFER = "deployment_num_infer_gpus"
IDS = {TRAIN: "trainer_gpu_ids", INFER: "inference_gpu_ids"}
"""Number of accelerators -> the option of earlier versions that lists them."""
KEYS = ("--deployment.num-train-gpus", "--deployment.num-infer-gpus")


def _recognize_command(words: Sequence[str], position: int) -> int | None:
    """The command, followed by @ or an option: with @ FILE, or after uv run."""
    name = words[position]
    following = words[position + 1] if position + 1 < len(words) else ""
    before = words[position - 1] if position else ""
    if name.rpartition("/")[2] not in NAMES or not (following == "@" or following.startswith(("@", "--"))):
        return None
    is_certain = "@" in words[position:] or following.startswith("@")
    return position + 1 if is_certain or before in RUNNERS or "/bin/" in name else None


def _read_key(argument: Argument) -> str | None:
    """The key of an option: dashes count as underscores, and --no- switches one off."""
    option = read_option(argument)
    return option.replace("-", "_").removeprefix("no_") if option is not None else None


def _choose_part(program: Program) -> str:
    return program.part


KEY_CHECK = KeyCheck("prime_rl/keys.toml", "ends with an error", _read_key, _choose_part)


def read_call(call: Call) -> Program:
    """Read the options. The TOML files have the others."""
    own_config = any(word.startswith("@") for _, word in call.words)
    names = call.entry.removesuffix(".py").replace("/", ".").split(".")
    part = next((each for each in ("trainer", "sft", *NAMES) if each in names), "")
    return Program("prime-rl", tuple(parse_flags(call.words)), own_config=own_config, part=part)


def count_devices(program: Program) -> Demand | None:
    """Count the accelerators of rl on one machine, or of a trainer that torchrun starts."""
    if launched := read_launcher_devices(program):
        return launched
    default = None if program.own_config else 1
    train = _count(program, TRAIN, default)
    infer = _count(program, INFER, default)
    if train is None or infer is None:
        return None
    return Demand(train + infer, per_pod=train + infer, keys=KEYS)


def _count(program: Program, key: str, default: int | None) -> int | None:
    if IDS[key] in program.given:
        return len(str(program.values.get(IDS[key])).split(","))
    return read_number(program, key, default)


def find_checkpoints(program: Program) -> str | None:
    """Find the folder checkpoints of prime-rl 0.8: in --ckpt.output-dir, or in the folder of the run, below
    --output-dir (get_ckpt_dir in utils/pathing.py). A run without a name gets another one at each start."""
    values = program.values
    folder = next((values[key] for key in ("ckpt_output_dir", "output_dir") if key in values), None)
    parts = [folder]
    if "ckpt_output_dir" not in values and program.part in ("rl", "sft"):
        parts.append(values.get("run_dir", values.get("run_name")))
    names = [each for each in parts if isinstance(each, str)]
    return "/".join([*names, "checkpoints"]) if len(names) == len(parts) else None


def warn(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings: where the processes run, and what a new attempt does."""
    yield from KEY_CHECK.warn(program, spec)
    yield from warn_on_head(program, spec, "prime-rl", count_devices(program))
    yield from warn_without_resume("ckpt_interval", "resume", "add --resume")(program, spec)
    is_named = program.own_config or {"run_name", "run_dir"} & program.given.keys()
    if "resume" in program.given and program.part in ("rl", "sft") and not is_named:
        yield f"{COMMAND}: --resume: each start gets another folder, because the run has no name; add --run.name"


PRIME_RL = KnownProgram(
    name="prime-rl",
    title="prime-rl",
    recognize=any_of(by_module(*MODULES, *TRAINERS), _recognize_command),
    read=read_call,
    count_devices=count_devices,
    models=("model_name",),
    find_checkpoints=find_checkpoints,
    resume={"--resume": "", "--run.name": "a name, so that the next attempt finds the folder"},
    validate=require_devices(count_devices, "prime-rl", "ends with an error"),
    warn=warn,
    shorten=shorten,
)
