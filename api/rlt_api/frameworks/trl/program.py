"""TRL's scripts, as programs of command jobs (trl 1.16: trl/cli, trl/scripts, examples/scripts).

accelerate or torchrun starts them; the command trl passes its options to accelerate.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.frameworks.arguments import Program, parse_flags
from rlt_api.frameworks.command.demand import (
    read_launcher_devices,
    require_devices,
    warn_on_head,
    warn_without_resume,
)
from rlt_api.frameworks.known_program import Call, Demand, KnownProgram, any_of, by_command, by_module, by_script
from rlt_api.spec.job_spec import RLTrainingJobSpec

SCRIPTS = ("grpo", "rloo", "dpo", "kto", "sft", "reward")
"""The scripts in trl/scripts, and the commands of trl."""
NO_RESUME = "the scripts of TRL load no checkpoint: use one that calls trainer.train(resume_from_checkpoint=True)"


def read_call(call: Call) -> Program:
    """Read the options of trl, and the options of accelerate that follow them."""
    words = call.words
    own_config = any(word.partition("=")[0] == "--config" for _, word in words)
    return Program("trl", tuple(parse_flags(words)), own_config=own_config)


def count_devices(program: Program) -> Demand | None:
    """Count the processes of accelerate or torchrun. A vLLM server of another command is not counted."""
    return read_launcher_devices(program)


def warn(program: Program, spec: RLTrainingJobSpec) -> Iterator[str]:
    """Yield the warnings: where the processes run, and what a new attempt does."""
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
)
