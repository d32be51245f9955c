"""spec.rewards: scores of the responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.model import ModelPath
from rlt_api.model import ApiModel, JsonObject, cel


class RewardFunction(PythonFunction):
    """A user-defined Python function: verl's custom_reward_function."""

    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Timeout for one response, in seconds."""


class Reward(ApiModel):
    """One score of a response. Its source is one of name, function and model. Scores of rules by name are between 0 and
    1."""

    model_config = cel(
        (
            "[has(self.name), has(self.function), has(self.model)].exists_one(given, given)",
            "must have exactly one of name, function and model",
        ),
        ("!has(self.options) || has(self.name)", "options are only for rewards with name"),
    )

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.:-]+$", max_length=253)] | None = None
    """A rule: exact compares the whole response with the answer; gsm8k the number after ####; math the mathematical
    value of the answer; format requires sections such as <think> and <answer>; length a number of characters or words;
    regex a match of a pattern; characters is the share of positions with the correct character."""
    options: JsonObject = {}
    """Options of the rule. gsm8k: method (strict, flexible). format: tags or pattern. length: min, max and unit
    (characters, words). regex: pattern."""
    function: RewardFunction | None = None
    """A user-defined Python function."""
    model: ModelPath | None = None
    """A reward model, as in model.path: a sequence classifier with one output, whose logit is the score."""
    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """Factor of the score in the sum of all rewards."""
