"""spec.framework: the program that runs on the job's Ray cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlt_api.model import AbsolutePath, ApiModel, Positive, cel


class Framework(ApiModel):
    """The program that runs on the Ray cluster."""

    model_config = cel(
        (
            "(has(self.type) && self.type == 'command') == has(self.command)",
            "command is required for type command, and not allowed otherwise",
        ),
        (
            "has(self.type) && self.type == 'command' || !has(self.workingDirectory) && !has(self.totalSteps)",
            "workingDirectory and totalSteps are only for type command",
        ),
        ("!has(self.command) || self.command.size() > 0", "command must not be empty"),
    )

    type: Literal["builtin", "command"] = "builtin"
    """builtin is rlt's trainer. command runs the given command on the head, as a Ray job."""
    command: Annotated[list[Annotated[str, StringConstraints(max_length=65536)]], Field(max_length=256)] | None = None
    """The program and its arguments, such as python3 -m verl.trainer.main_ppo …. It runs without a shell. Lines in
    verl's format `step:N - key:value - …` in its output become the job's progress and metrics."""
    working_directory: AbsolutePath | None = None
    """Working directory of the command. Default: Ray's."""
    total_steps: Positive | None = None
    """Total number of steps of the command, if it does not print them as verl does."""
