"""prime-rl's options for the preflight check `training-step`: one step in a folder. Pure.

The batch may be in the TOML file, so that the step has the job's own.
"""

from __future__ import annotations

from rlt_api.frameworks.arguments import Program
from rlt_api.frameworks.known_program import Shortened
from rlt_api.frameworks.preflight import format_options, reject_trial


def shorten(program: Program, directory: str) -> Shortened:
    """Build the options for the first step, and for a second start that resumes after it (prime-rl 0.8)."""
    if program.part not in ("rl", "sft"):
        return reject_trial("A part of prime-rl alone makes no step: only rl and sft start all parts.")
    settings = {
        "output-dir": directory,
        "run.name": "step",
        "ckpt.output-dir": f"{directory}/step",
        "ckpt.interval": 1,
    }
    first, second = (format_options({**settings, "max-steps": steps}) for steps in (1, 2))
    return first, [*second, "--resume"]
