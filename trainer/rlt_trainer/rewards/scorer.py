"""The reward of a job: a weighted sum. A response that cannot be scored counts as failed, not as 0."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from rlt_api.blocks.rewards import Reward
from rlt_api.blocks.rollout import MultiTurn
from rlt_api.rules.sandboxes import runs_in_sandbox
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.event_loop import EventLoopThread
from rlt_trainer.rewards.judge import JudgeSource
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.sources import BatchCalls, LimitedSource
from rlt_trainer.sandboxes.user_sandbox import Exchange

ENVIRONMENT = "environment"
"""The name of an environment's rewards in reports. Their weight is 1."""

_log = logging.getLogger(__name__)


class Scorer:
    """Scores responses. It owns a thread and processes: close it, or use it in a `with` statement."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        """Raises ValueError for an unknown rule, invalid options, a missing value of a Secret, and a function that
        cannot be loaded."""
        named = name_rewards(rewards)
        self.models: dict[str, str] = {name: reward.model for name, reward in named.items() if reward.model is not None}
        """Name -> path of each reward model. Reward models run on the train workers."""
        self._weights = {name: reward.weight for name, reward in named.items()}
        self._rules = {name for name, reward in named.items() if reward.name is not None}
        self._sources = {
            name: LimitedSource.build(reward, index)
            for index, (name, reward) in enumerate(named.items())
            if reward.model is None
        }
        self._loop = EventLoopThread("rewards")

    def validate_sandbox(self, multi_turn: MultiTurn | None) -> None:
        """Raise ValueError if a reward needs a sandbox and the job has none, or if the job has one that nothing
        uses."""
        sandboxed = [name for name, source in self._sources.items() if source.source.takes_sandbox]
        has_sandbox = multi_turn is not None and multi_turn.sandbox is not None
        if sandboxed and not has_sandbox:
            raise ValueError(
                f"rewards: function {sandboxed[0]} has the parameter sandbox, but the job has no sandboxes. Add "
                "rollout.multiTurn.sandbox, or remove the parameter."
            )
        if multi_turn is not None and has_sandbox and not sandboxed and not runs_in_sandbox(multi_turn):
            raise ValueError(
                "rollout.multiTurn.sandbox has no effect: the job has no tool or agent in it, and no function of "
                "rewards has the parameter sandbox. Add the parameter, or remove the field."
            )

    def validate_judges(self, prompt: Prompt) -> None:
        """Send one request to each judge: the solution of `prompt`. Raises ValueError if it gets no score."""
        for source in self._sources.values():
            if isinstance(source.source, JudgeSource):
                self._loop.submit(source.source.validate(prompt)).result()

    def open_batch(self) -> BatchScoring:
        """Begin a batch of responses."""
        return BatchScoring(self._sources, self._loop)

    def combine(self, outcomes: Sequence[Mapping[str, Outcome]], *, log: bool = True) -> Scores:
        """Combine the outcomes of B responses, each by the names of the rewards.

        ENVIRONMENT is the reward of an environment. Failures are logged with `log`. Raises TrainingError if no response
        could be scored.
        """
        columns: dict[str, Sequence[Outcome]] = {name: [each[name] for each in outcomes] for name in self._weights}
        if any(ENVIRONMENT in each for each in outcomes):
            columns[ENVIRONMENT] = [each.get(ENVIRONMENT, 0.0) for each in outcomes]
        if not columns:
            raise TrainingError(
                "spec.rewards is empty, and the environment returned no reward. Add a reward, or return one from step."
            )
        scores = combine(columns, {**self._weights, ENVIRONMENT: 1.0}, rules=self._rules)
        _report_failures(columns, all_failed=bool(scores.failed.all()), log=log)
        return scores

    def close(self) -> None:
        """End the thread and the processes."""
        self._loop.submit(self._close_sources()).result()
        self._loop.close()

    async def _close_sources(self) -> None:
        await asyncio.gather(*(source.source.close() for source in self._sources.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BatchScoring:
    """Scores the responses of one batch, each as soon as it is complete."""

    def __init__(self, sources: Mapping[str, LimitedSource], loop: EventLoopThread) -> None:
        self.takes_sandbox = any(source.source.takes_sandbox for source in sources.values())
        """Whether a reward gets the sandbox of its conversation."""
        self._sources = {name: (source, BatchCalls()) for name, source in sources.items()}
        self._loop = loop

    def start(self, text: str, prompt: Prompt, exchange: Exchange | None = None) -> Future[dict[str, Outcome]]:
        """Start to score one response, without end-of-text token, with all rewards but reward models.

        Returns name -> outcome. `exchange`: for the sandbox of its conversation. Any thread may call it.
        """
        return self._loop.submit(self._score(text, prompt, exchange))

    async def _score(self, text: str, prompt: Prompt, exchange: Exchange | None) -> dict[str, Outcome]:
        outcomes = await asyncio.gather(
            *(source.score_one(text, prompt, calls, exchange) for source, calls in self._sources.values())
        )
        return dict(zip(self._sources, outcomes, strict=True))


def name_rewards(rewards: Sequence[Reward]) -> dict[str, Reward]:
    """Name each reward after its rule, function, model folder or judge's model. A second reward of the same name
    becomes NAME-2."""
    named: dict[str, Reward] = {}
    count: Counter[str] = Counter()
    for reward in rewards:
        model = reward.judge.model if reward.judge else reward.model or ""
        name = reward.name or (reward.function.name if reward.function else Path(model).name)
        count[name] += 1
        named[name if count[name] == 1 else f"{name}-{count[name]}"] = reward
    return named


def combine(
    outcomes: Mapping[str, Sequence[Outcome]], weights: Mapping[str, float], *, rules: Collection[str] = ()
) -> Scores:
    """Add up the weighted outcomes of the rewards. Each reward has one outcome for each response.

    rules: the rewards by rule, whose timeouts score 0.
    """
    by_reward = {
        name: torch.tensor([to_score(each, timeout_score=get_timeout_score(name in rules, column)) for each in column])
        for name, column in outcomes.items()
    }
    total = torch.stack([weights[name] * scores for name, scores in by_reward.items()]).sum(0)
    failures = [
        f"{name}/{each.reason}" for name, column in outcomes.items() for each in column if isinstance(each, Failure)
    ]
    rows = zip(*outcomes.values(), strict=True)
    messages = tuple(_find_failure(dict(zip(outcomes, row, strict=True))) for row in rows)
    return Scores(total, by_reward, total.isnan(), dict(Counter(failures)), messages)


def _find_failure(outcomes: Mapping[str, Outcome]) -> str | None:
    """Return name and message of the first reward of a response that failed. The environment precedes the others."""
    ordered = {ENVIRONMENT: outcomes.get(ENVIRONMENT, 0.0), **outcomes}
    failed = (f"{name}: {each.message}" for name, each in ordered.items() if isinstance(each, Failure))
    return next(failed, None)


def to_score(outcome: Outcome, *, timeout_score: float) -> float:
    """Return the score, or NaN for a failure."""
    if isinstance(outcome, Failure):
        return timeout_score if outcome.reason == "timed_out" and outcome.was_called else torch.nan
    return outcome


def get_timeout_score(is_rule: bool, outcomes: Sequence[Outcome]) -> float:
    """Return the score of a response at which the reward timed out: 0 for a rule that scored another of the batch.

    A rule computes on this machine from the response alone: the response caused the timeout, and without a score it
    would have no negative advantage. verl scores 0. A function, a judge or a tool may wait for something else: NaN.
    """
    works = any(not isinstance(each, Failure) for each in outcomes)
    return 0.0 if is_rule and works else torch.nan


def to_outcomes(scores: Tensor) -> list[Outcome]:
    """Convert the scores [B] of a reward model. A score that is not finite is a failure."""
    values = [float(score) for score in scores]
    return [v if -torch.inf < v < torch.inf else Failure("not_finite", f"it returned {v}") for v in values]


def _report_failures(outcomes: Mapping[str, Sequence[Outcome]], *, all_failed: bool, log: bool) -> None:
    """Log a warning for each reward and reason with the first message. Raise TrainingError if `all_failed`."""
    messages = []
    for name, column in outcomes.items():
        failures = [each for each in column if isinstance(each, Failure)]
        for reason in dict.fromkeys(failure.reason for failure in failures):
            first, *more = [failure for failure in failures if failure.reason == reason]
            messages.append(f"reward {name} failed for {1 + len(more)} of {len(column)} responses: {first.message}")
    if all_failed:
        raise TrainingError(f"No response of the batch could be scored: {'; '.join(messages)}. Fix the reward.")
    for message in messages if log else []:
        _log.warning("failed responses are left out of the update, but a rule's timeout scores 0: %s", message)
