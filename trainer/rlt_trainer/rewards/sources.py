"""The source of one reward's scores: a rule in this process, or a function in the sandbox."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from rlt_api.blocks.rewards import Reward, RewardFunction
from rlt_api.reward_rules import RULE_OPTIONS
from rlt_api.training_config import FUNCTIONS_DIRECTORY
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.rewards import rules
from rlt_trainer.rewards.outcome import Outcome, call_reward
from rlt_trainer.rewards.sandbox import Sandbox

RULE_TIMEOUT_S = 10.0
"""Timeout for a rule in the sandbox to score one response."""

RULES: dict[str, Callable[..., float]] = {
    "characters": rules.characters,
    "exact": rules.exact,
    "gsm8k": rules.gsm8k,
    "length": rules.length,
}
"""Rules whose time is at most linear in the length of the response. They run in this process."""

SANDBOXED_RULES = {
    "format": "rlt_trainer.rewards.rules:form",
    "math": "rlt_trainer.rewards.mathematics:math",
    "regex": "rlt_trainer.rewards.rules:regex",
}
"""Rules that a response or a user's pattern can keep busy for hours. They run in the sandbox."""


class Source(Protocol):
    """Scores responses to prompts."""

    def score(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        """Return one outcome for each response, in order. Raises nothing."""
        ...

    def close(self) -> None:
        """End the processes of the source."""
        ...


class LocalRule:
    """A rule of RULES."""

    def __init__(self, function: Callable[..., float], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options

    def score(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        return [
            call_reward(self._function, {"response": text, "ground_truth": prompt.ground_truth, **self._options})
            for text, prompt in zip(texts, prompts, strict=True)
        ]

    def close(self) -> None:
        pass


class SandboxedRule:
    """A rule of SANDBOXED_RULES."""

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        self._sandbox = Sandbox(target, timeout_s=RULE_TIMEOUT_S)
        self._options = options

    def score(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        return self._sandbox.map(
            [
                {"response": text, "ground_truth": prompt.ground_truth, **self._options}
                for text, prompt in zip(texts, prompts, strict=True)
            ]
        )

    def close(self) -> None:
        self._sandbox.close()


class UserFunction:
    """A user-defined function, called as verl calls a custom_reward_function.

    compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict) -> float, or a dictionary
    whose "score" is the float. All four are keyword arguments. extra_info is the row's, plus the prompt's "index".
    """

    def __init__(self, function: RewardFunction) -> None:
        path = [f"{FUNCTIONS_DIRECTORY}/{function.config_map}"] if function.config_map else []
        self._sandbox = Sandbox(function.name, timeout_s=function.timeout_seconds, path=path)
        try:
            self._sandbox.load()
        except ValueError as error:
            self._sandbox.close()
            raise ValueError(
                f"rewards: function {function.name}: {error}. Correct the module in the image or in the ConfigMap."
            ) from error

    def score(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        return self._sandbox.map(
            [
                {
                    "data_source": prompt.data_source,
                    "solution_str": text,
                    "ground_truth": prompt.ground_truth,
                    "extra_info": {"index": prompt.index, **prompt.extra_info},
                }
                for text, prompt in zip(texts, prompts, strict=True)
            ]
        )

    def close(self) -> None:
        self._sandbox.close()


def build_source(reward: Reward) -> Source:
    """Build the source of a rule or a function. Raises ValueError if the reward is invalid."""
    if reward.function is not None:
        return UserFunction(reward.function)
    assert reward.name is not None, "reward models run on the train workers"
    if reward.name not in RULE_OPTIONS:
        nearest = difflib.get_close_matches(reward.name, RULE_OPTIONS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f'rewards: rule "{reward.name}" does not exist. The rules are {", ".join(sorted(RULE_OPTIONS))}; '
            f'did you mean "{nearest}"?'
        )
    options = parse_rule_options(reward.name, reward.options)
    if reward.name in SANDBOXED_RULES:
        return SandboxedRule(SANDBOXED_RULES[reward.name], options)
    return LocalRule(RULES[reward.name], options)


def parse_rule_options(rule: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the rule's keyword arguments with defaults. Raises ValueError with the name of an invalid option."""
    try:
        return RULE_OPTIONS[rule].model_validate(given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(["rewards[].options", *map(str, first["loc"])])
        raise ValueError(f"{option} of rule {rule}: {first['msg']}.") from error
