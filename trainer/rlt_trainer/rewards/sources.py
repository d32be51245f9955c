"""Where the scores of one reward come from: a rule in this process, or a function in the sandbox."""

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
from rlt_trainer.rewards.outcome import Outcome, outcome
from rlt_trainer.rewards.sandbox import Sandbox

RULE_SECONDS = 10.0
"""Time for a rule in the sandbox to score one response."""

RULES: dict[str, Callable[..., float]] = {
    "characters": rules.characters,
    "exact": rules.exact,
    "gsm8k": rules.gsm8k,
    "length": rules.length,
}
"""Rules that take no longer than it takes to read the response."""

SANDBOXED_RULES = {
    "format": "rlt_trainer.rewards.rules:form",
    "math": "rlt_trainer.rewards.mathematics:math",
    "regex": "rlt_trainer.rewards.rules:regex",
}
"""Rules that a response, or a user's pattern, can keep busy for hours."""


class Source(Protocol):
    """Scores responses to prompts."""

    def outcomes(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        """One for each response, in order. Nothing is raised."""
        ...

    def close(self) -> None:
        """End what it has started."""
        ...


class LocalRule:
    """A rule of RULES."""

    def __init__(self, function: Callable[..., float], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options

    def outcomes(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        return [
            outcome(self._function, {"response": text, "ground_truth": prompt.ground_truth, **self._options})
            for text, prompt in zip(texts, prompts, strict=True)
        ]

    def close(self) -> None:
        pass


class SandboxedRule:
    """A rule of SANDBOXED_RULES."""

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        self._sandbox = Sandbox(target, seconds=RULE_SECONDS)
        self._options = options

    def outcomes(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
        return self._sandbox.map(
            [
                {"response": text, "ground_truth": prompt.ground_truth, **self._options}
                for text, prompt in zip(texts, prompts, strict=True)
            ]
        )

    def close(self) -> None:
        self._sandbox.close()


class UserFunction:
    """A user's own function, called as verl calls a custom_reward_function.

    compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict) -> float, or a dictionary
    whose "score" is the float. All four come by keyword; extra_info is the row's, with the prompt's "index" in it.
    """

    def __init__(self, function: RewardFunction) -> None:
        path = [f"{FUNCTIONS_DIRECTORY}/{function.config_map}"] if function.config_map else []
        self._sandbox = Sandbox(function.name, seconds=function.timeout_seconds, path=path)
        try:
            self._sandbox.check()
        except ValueError as error:
            self._sandbox.close()
            raise ValueError(f"rewards: function {function.name}: {error}") from error

    def outcomes(self, texts: Sequence[str], prompts: Sequence[Prompt]) -> list[Outcome]:
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


def source(reward: Reward) -> Source:
    """What scores `reward`, which is a rule or a function. Raises ValueError with what is wrong with it."""
    if reward.function is not None:
        return UserFunction(reward.function)
    assert reward.name is not None, "reward models score on the ranks"
    if reward.name not in RULE_OPTIONS:
        nearest = difflib.get_close_matches(reward.name, RULE_OPTIONS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f'rewards: there is no rule "{reward.name}". The rules are {", ".join(sorted(RULE_OPTIONS))}; '
            f'did you mean "{nearest}"?'
        )
    options = rule_options(reward.name, reward.options)
    if reward.name in SANDBOXED_RULES:
        return SandboxedRule(SANDBOXED_RULES[reward.name], options)
    return LocalRule(RULES[reward.name], options)


def rule_options(rule: str, given: dict[str, Any]) -> dict[str, Any]:
    """The rule's keyword arguments. Raises ValueError naming the option."""
    try:
        return RULE_OPTIONS[rule].model_validate(given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(["rewards[].options", *map(str, first["loc"])])
        raise ValueError(f"{option} of rule {rule}: {first['msg']}.") from error
