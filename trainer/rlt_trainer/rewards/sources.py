"""The source of one reward's scores: a rule in this process, a function in the sandbox, or a judge."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from pydantic import ValidationError

from rlt_api.blocks.rewards import Reward, RewardFunction
from rlt_api.spec.pod_variables import API_KEY, reward_prefix
from rlt_api.spec.reward_rules import RULE_OPTIONS
from rlt_api.spec.training_config import FUNCTIONS_DIRECTORY
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.pod_variables import read_variable, read_variables
from rlt_trainer.rewards import rules
from rlt_trainer.rewards.judge import JudgeSource
from rlt_trainer.rewards.outcome import Failure, Outcome, call_reward
from rlt_trainer.rewards.sandbox import Sandbox
from rlt_trainer.sandboxes.user_sandbox import Exchange

MAX_PROCESSES = min(4, len(os.sched_getaffinity(0)))
"""Default of rewards[].concurrency for functions and rules in the sandbox."""
JUDGE_CONCURRENCY = 64
"""Default of rewards[].concurrency for judges."""
MAX_FAILURES = 16
"""Number of calls that may time out at the beginning of a batch before the remaining calls are skipped."""
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

    takes_sandbox: bool
    """Whether it needs the sandbox of the conversation."""

    async def score_one(self, text: str, prompt: Prompt, exchange: Exchange | None = None) -> Outcome:
        """Return the outcome of one response. `exchange`: for its sandbox. Raises nothing."""
        ...

    async def close(self) -> None:
        """End the processes or connections of the source."""
        ...


class LocalRule:
    """A rule of RULES."""

    takes_sandbox = False

    def __init__(self, function: Callable[..., float], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options

    async def score_one(self, text: str, prompt: Prompt, exchange: Exchange | None = None) -> Outcome:
        return call_reward(self._function, {"response": text, "ground_truth": prompt.ground_truth, **self._options})

    async def close(self) -> None:
        pass


class SandboxedRule:
    """A rule of SANDBOXED_RULES."""

    takes_sandbox = False

    def __init__(self, target: str, options: dict[str, Any], *, processes: int) -> None:
        self._sandbox = Sandbox(target, timeout_s=RULE_TIMEOUT_S, processes=processes)
        self._options = options

    async def score_one(self, text: str, prompt: Prompt, exchange: Exchange | None = None) -> Outcome:
        outcome: Outcome = await self._sandbox.call(
            {"response": text, "ground_truth": prompt.ground_truth, **self._options}
        )
        return outcome

    async def close(self) -> None:
        self._sandbox.close()


class UserFunction:
    """A user-defined function, called as verl calls a custom_reward_function.

    compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict, **options) -> float, or a
    dictionary whose "score" is the float. All are keyword arguments. extra_info is the row's, plus the prompt's
    "index". The options are rewards[].options. A parameter `sandbox` gets a UserSandbox, unless an option has its name.
    """

    def __init__(
        self, function: RewardFunction, options: Mapping[str, Any], variables: Mapping[str, str], *, processes: int
    ) -> None:
        path = [f"{FUNCTIONS_DIRECTORY}/{function.config_map}"] if function.config_map else []
        self._options = options
        self._sandbox = Sandbox(
            function.name, timeout_s=function.timeout_seconds, processes=processes, path=path, variables=variables
        )
        try:
            takes_sandbox = self._sandbox.load()
        except ValueError as error:
            self._sandbox.close()
            raise ValueError(
                f"rewards: function {function.name}: {error}. Correct the module in the image or in the ConfigMap."
            ) from error
        self.takes_sandbox = takes_sandbox and "sandbox" not in options

    async def score_one(self, text: str, prompt: Prompt, exchange: Exchange | None = None) -> Outcome:
        outcome: Outcome = await self._sandbox.call(
            {
                "data_source": prompt.data_source,
                "solution_str": text,
                "ground_truth": prompt.ground_truth,
                "extra_info": {"index": prompt.index, **prompt.extra_info},
                **self._options,
            },
            exchange,
        )
        return outcome

    async def close(self) -> None:
        self._sandbox.close()


@dataclass
class BatchCalls:
    """The calls of a source for the responses of one batch.

    If the first MAX_FAILURES calls all time out or find the judge unavailable, the other calls are skipped: the batch
    would take hours to fail.
    """

    failures: list[Failure] = field(default_factory=list)
    """Timeouts, and answers of an unavailable judge."""
    has_completed: bool = False
    """Whether another call ended."""

    def find_skip(self) -> Failure | None:
        """Return the outcome of a call that is skipped."""
        if self.has_completed or len(self.failures) < MAX_FAILURES:
            return None
        last = self.failures[-1]
        message = f"it was not called after {len(self.failures)} failures: {last.message}"
        return Failure(last.reason, message, was_called=False)

    def add(self, outcome: Outcome) -> None:
        """Count the outcome of a call."""
        if isinstance(outcome, Failure) and outcome.reason in ("timed_out", "unavailable"):
            self.failures.append(outcome)
        else:
            self.has_completed = True


class LimitedSource:
    """At most `concurrency` calls of a source at the same time, of all batches together."""

    def __init__(self, source: Source, concurrency: int) -> None:
        self.source = source
        self._slots = asyncio.Semaphore(concurrency)

    @classmethod
    def build(cls, reward: Reward, index: int) -> Self:
        """Build the source of rewards[index]. Raises ValueError as build_source does."""
        concurrency = reward.concurrency or (JUDGE_CONCURRENCY if reward.judge else MAX_PROCESSES)
        return cls(build_source(reward, index, processes=concurrency), concurrency)

    async def score_one(
        self, text: str, prompt: Prompt, calls: BatchCalls, exchange: Exchange | None = None
    ) -> Outcome:
        """Return the outcome of one response in the batch of `calls`."""
        async with self._slots:
            if skipped := calls.find_skip():
                return skipped
            outcome = await self.source.score_one(text, prompt, exchange)
            calls.add(outcome)
            return outcome


def build_source(reward: Reward, index: int, *, processes: int) -> Source:
    """Build the source of rewards[index], which is not a reward model. Raises ValueError if the reward is invalid."""
    prefix = reward_prefix(index)
    path = f"rewards[{index}]"
    if reward.judge is not None:
        api_key = read_variable(prefix + API_KEY, f"{path}.judge.apiKey") if reward.judge.api_key else None
        return JudgeSource(reward.judge, reward.options, api_key=api_key, field=f"{path}.judge")
    if reward.function is not None:
        variables = read_variables(reward.env, prefix=prefix, field=f"{path}.env")
        return UserFunction(reward.function, reward.options, variables, processes=processes)
    assert reward.name is not None, "reward models run on the train workers"
    if reward.name not in RULE_OPTIONS:
        nearest = difflib.get_close_matches(reward.name, RULE_OPTIONS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f'rewards: rule "{reward.name}" does not exist. The rules are {", ".join(sorted(RULE_OPTIONS))}; '
            f'did you mean "{nearest}"?'
        )
    options = parse_rule_options(reward.name, reward.options)
    if reward.name in SANDBOXED_RULES:
        return SandboxedRule(SANDBOXED_RULES[reward.name], options, processes=processes)
    return LocalRule(RULES[reward.name], options)


def parse_rule_options(rule: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the rule's keyword arguments with defaults. Raises ValueError with the name of an invalid option."""
    try:
        return RULE_OPTIONS[rule].model_validate(given).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        option = ".".join(["rewards[].options", *map(str, first["loc"])])
        raise ValueError(f"{option} of rule {rule}: {first['msg']}.") from error
