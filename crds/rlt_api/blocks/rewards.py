"""spec.rewards: what scores the responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from rlt_api.blocks.functions import PythonFunction
from rlt_api.blocks.model import ModelPath
from rlt_api.model import ApiModel, JsonObject, cel


class RewardFunction(PythonFunction):
    """A Python function of the user's own: verl's custom_reward_function."""

    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Time that one response may take."""


class Reward(ApiModel):
    """One score of a response: exactly one of name, function and model. Those by name are between 0 and 1."""

    model_config = cel(
        (
            "[has(self.name), has(self.function), has(self.model)].exists_one(given, given)",
            "give exactly one of name, function and model",
        ),
        ("!has(self.options) || has(self.name)", "options are for rules by name"),
    )

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.:-]+$", max_length=253)] | None = None
    """A rule: exact compares the whole response with the answer; gsm8k the number after ####; math the answer as
    mathematics; format wants sections such as <think> and <answer>; length a number of characters; regex a pattern;
    characters is the share of the places that have the right character."""
    options: JsonObject = {}
    """Parameters of the rule. gsm8k: method (strict, flexible). format: tags or pattern. length: min, max and unit
    (characters, words). regex: pattern."""
    function: RewardFunction | None = None
    """A Python function of your own."""
    model: ModelPath | None = None
    """A reward model, as for model.path: a sequence classifier with one output, whose logit is the score."""
    weight: Annotated[float, Field(ge=-1e6, le=1e6)] = 1.0
    """What the score is multiplied by before the rewards are added."""
