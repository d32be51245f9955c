"""spec.rewards: what scores the responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rlt_api.blocks.model import ModelPath
from rlt_api.model import NOT_YET, ApiModel, ObjectName, cel

FunctionName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=253)
]


class RewardFunction(ApiModel):
    """A Python function of the user's own: verl's custom_reward_function."""

    name: FunctionName
    """module:function, the module being in the image or in the ConfigMap."""
    config_map: ObjectName | None = None
    """A ConfigMap in the job's namespace whose keys are the modules' files. Default: the image has the module."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Time that one response may take."""


class Reward(ApiModel):
    """One score of a response between 0 and 1: exactly one of name, function and model."""

    model_config = cel(
        (
            "[has(self.name), has(self.function), has(self.model)].exists_one(given, given)",
            "give exactly one of name, function and model",
        ),
    )

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.:-]+$", max_length=253)] | None = None
    """A rule: exact compares the whole response with the answer; gsm8k compares the number after ####."""
    function: Annotated[RewardFunction | None, NOT_YET] = None
    """A Python function of your own."""
    model: Annotated[ModelPath | None, NOT_YET] = None
    """A reward model: a classifier with one output."""
    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """What the score is multiplied by before the rewards are added."""
