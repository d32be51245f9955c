"""spec.framework: what runs on the job's Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import AbsolutePath, ApiModel, Positive, cel


class Framework(ApiModel):
    """What runs on the job's Ray cluster."""

    model_config = cel(
        (
            "(has(self.type) && self.type == 'command') == has(self.command)",
            "command is required for type command, and only there",
        ),
        (
            "has(self.type) && self.type == 'command' || !has(self.workingDirectory) && !has(self.totalSteps)",
            "workingDirectory and totalSteps are for type command only",
        ),
        ("!has(self.command) || self.command.size() > 0", "command needs a program"),
    )

    type: Literal["builtin", "command"] = "builtin"
    """builtin is rlt's own trainer; command runs the command given below on the head, as a Ray job."""
    command: Annotated[list[Annotated[str, StringConstraints(max_length=65536)]], Field(max_length=256)] | None = None
    """The program and its arguments, for type command, such as python3 -m verl.trainer.main_ppo …. It is run without a
    shell. Lines like verl's `step:N - key:value - …` in its output become the job's progress and metrics."""
    working_directory: AbsolutePath | None = None
    """For type command: where it runs. Default: where Ray starts jobs."""
    total_steps: Positive | None = None
    """For type command: steps in all, where the program does not print them as verl does."""
