"""The reward of a job: a weighted sum. A response that cannot be scored counts as failed, never as 0."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from rlt_api.blocks.rewards import Reward
from rlt_trainer.batches.scores import Scores
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.sources import build_source

ENVIRONMENT = "environment"
"""The name of an environment's rewards in reports. Their weight is 1."""

_log = logging.getLogger(__name__)


class Scorer:
    """Scores responses. It may own processes: close it, or use it in a `with` statement."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        """Raises ValueError for an unknown rule, for invalid options, and for a function that cannot be loaded."""
        named = name_rewards(rewards)
        self.models: dict[str, str] = {name: reward.model for name, reward in named.items() if reward.model is not None}
        """Name -> path of each reward model. Reward models run on the train workers."""
        self._weights = {name: reward.weight for name, reward in named.items()}
        self._sources = {name: build_source(reward) for name, reward in named.items() if reward.model is None}

    def score(
        self,
        texts: Sequence[str],
        prompts: Sequence[Prompt],
        *,
        models: Mapping[str, Tensor] | None = None,
        environment: Tensor | None = None,
    ) -> Scores:
        """Score B responses, without end-of-text token, to their prompts.

        `models` holds the scores [B] of each of self.models; `environment` holds those [B] of an environment that gives
        rewards. NaN in them is a failure. Raises TrainingError if no response could be scored.
        """
        outcomes: dict[str, list[Outcome]] = {}
        for name in self._weights:
            if name in self.models:
                outcomes[name] = to_outcomes((models or {})[name])
            else:
                outcomes[name] = self._sources[name].score(texts, prompts)
        if environment is not None:
            outcomes[ENVIRONMENT] = to_outcomes(environment)
        scores = combine(outcomes, {**self._weights, ENVIRONMENT: 1.0})
        _report_failures(outcomes, all_failed=bool(scores.failed.all()))
        return scores

    def close(self) -> None:
        """End the processes."""
        for source in self._sources.values():
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def name_rewards(rewards: Sequence[Reward]) -> dict[str, Reward]:
    """Name each reward after its rule, function or model folder. A second reward of the same name becomes NAME-2."""
    named: dict[str, Reward] = {}
    count: Counter[str] = Counter()
    for reward in rewards:
        name = reward.name or (reward.function.name if reward.function else Path(reward.model or "").name)
        count[name] += 1
        named[name if count[name] == 1 else f"{name}-{count[name]}"] = reward
    return named


def combine(outcomes: Mapping[str, Sequence[Outcome]], weights: Mapping[str, float]) -> Scores:
    """Add up the weighted outcomes of the rewards. Each reward has one outcome for each response."""
    by_reward = {
        name: torch.tensor([torch.nan if isinstance(each, Failure) else each for each in column])
        for name, column in outcomes.items()
    }
    total = torch.stack([weights[name] * scores for name, scores in by_reward.items()]).sum(0)
    failures = [
        f"{name}/{each.reason}" for name, column in outcomes.items() for each in column if isinstance(each, Failure)
    ]
    return Scores(total, by_reward, total.isnan(), dict(Counter(failures)))


def to_outcomes(scores: Tensor) -> list[Outcome]:
    """Convert the scores [B] of a reward model or an environment. A score that is not finite is a failure."""
    values = [float(score) for score in scores]
    return [v if -torch.inf < v < torch.inf else Failure("not_finite", f"it returned {v}") for v in values]


def _report_failures(outcomes: Mapping[str, Sequence[Outcome]], *, all_failed: bool) -> None:
    """Log a warning for each reward and reason with the first message. Raise TrainingError if `all_failed`."""
    messages = []
    for name, column in outcomes.items():
        failures = [each for each in column if isinstance(each, Failure)]
        for reason in dict.fromkeys(failure.reason for failure in failures):
            first, *more = [failure for failure in failures if failure.reason == reason]
            messages.append(f"reward {name} failed for {1 + len(more)} of {len(column)} responses: {first.message}")
    if all_failed:
        raise TrainingError(f"No response of the batch could be scored: {'; '.join(messages)}. Fix the reward.")
    for message in messages:
        _log.warning("the failed responses are left out of the update: %s", message)
