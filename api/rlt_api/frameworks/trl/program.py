"""TRL's scripts, as programs of command jobs (trl 1.16: trl/cli, trl/scripts, examples/scripts).

accelerate or torchrun starts them; the command trl passes its options to accelerate.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.frameworks.arguments import Argument, Program, parse_flags
from rlt_api.frameworks.command.demand import (
    read_launcher_devices,
    require_devices,
    warn_on_head,
    warn_without_resume,
)
from rlt_api.frameworks.key_table import KeyCheck, read_option
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, any_of, by_command, by_module, by_script
from rlt_api.frameworks.trl.trial import shorten
from rlt_api.spec.job_spec import RLTrainingJobSpec

SCRIPTS = ("grpo", "rloo", "dpo", "kto", "sft", "reward")
"""The scripts in trl/scripts, and the commands of trl."""
NO_RESUME = "the scripts of TRL load no checkpoint: use one that calls trainer.train(resume_from_checkpoint=True)"


def _read_key(argument: Argument) -> str | None:
    """The key of an option: dashes count as underscores."""
    option = read_option(argument)
    return option.replace("-", "_") if option is not None else None


def _choose_part(program: Program) -> str:
    return program.part


KEYS = KeyCheck("trl/keys.toml", "does not use it", _read_key, _choose_part, abbreviates=True)


def read_call(call: Call) -> Program:
    """Read the options of trl, and the options of accelerate that follow them."""
    words = call.words
    own_config = any(word.partition("=")[0] == "--config" for _, word in words)
    part = call.subcommand or call.entry.removesuffix(".py").replace("/", ".").rpartition("trl.scripts.")[2]
    return Program("trl", tuple(parse_flags(words)), own_config=own_config, part=part)


def count_devices(program: Program) -> Demand | None:
    """Count the processes of accelerate or torchrun. A vLLM server of another command is not counted."""
    return read_launcher_devices(program)


def warn(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings: where the processes run, and what a new attempt does."""
    yield from KEYS.warn(program, spec)
    yield from warn_on_head(program, spec, "TRL", count_devices(program))
    yield from warn_without_resume("output_dir", "", NO_RESUME)(program, spec)


TRL = KnownProgram(
    name="trl",
    title="TRL",
    recognize=any_of(
        by_command("trl", *SCRIPTS),
        by_module(*(f"trl.scripts.{name}" for name in SCRIPTS)),
        by_script(r"(?:.*/)?trl/examples/scripts/\w+\.py"),
    ),
    read=read_call,
    count_devices=count_devices,
    models=("model_name_or_path", "reward_model_name_or_path"),
    prompts=("dataset_name",),
    checkpoints="output_dir",
    validate=require_devices(count_devices, "TRL", "ends with an error"),
    warn=warn,
    shorten=shorten,
)
