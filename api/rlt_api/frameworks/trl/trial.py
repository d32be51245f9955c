"""TRL's options for the preflight check `training-step`: one step in a folder. Pure.

The options replace the settings in the file of --config. The batch may be in it, so that the step has the job's own.
"""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.preflight import format_options


def shorten(program: Program, directory: str) -> Shortened:
    """Build the options for one step (transformers.TrainingArguments). TRL's scripts load no checkpoint, so that a
    second start proves nothing."""
    settings = {
        "max_steps": 1,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        "eval_strategy": "no",
        "report_to": "none",
        "output_dir": f"{directory}/checkpoints",
        **({"push_to_hub": "false"} if "push_to_hub" in program.given else {}),
    }
    return format_options(settings), None
