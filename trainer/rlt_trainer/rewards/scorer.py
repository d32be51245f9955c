"""The reward of a job: a weighted sum, in which a response that could not be scored counts as failed, never as 0."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from rlt_api.blocks.rewards import Reward
from rlt_trainer.data.prompt import Prompt
from rlt_trainer.errors import TrainingError
from rlt_trainer.rewards.outcome import Failure, Outcome
from rlt_trainer.rewards.sources import source

ENVIRONMENT = "environment"
"""The name under which an environment's own rewards are reported. Their weight is 1."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scores:
    """The rewards of B responses."""

    total: Tensor
    """[B], float32: the weighted sum. NaN where a reward failed."""
    by_reward: dict[str, Tensor]
    """Of each reward, before its weight: [B], float32, NaN where it failed."""
    failed: Tensor
    """[B], bool: a reward of this response failed, and it is left out of the learning."""
    reasons: dict[str, int]
    """ "NAME/REASON" -> number of responses; the reasons are those of rewards.outcome."""

    def rows(self, rows: Tensor) -> Self:
        """Some of the responses. The reasons stay: failures are counted whether the response is used or not."""
        by_reward = {name: scores[rows] for name, scores in self.by_reward.items()}
        return replace(self, total=self.total[rows], by_reward=by_reward, failed=self.failed[rows])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """One after the other. All of them are of one Scorer; an environment's rewards are told where all have them."""
        reasons: Counter[str] = Counter()
        for part in parts:
            reasons.update(part.reasons)
        return cls(
            torch.cat([part.total for part in parts]),
            {
                name: torch.cat([part.by_reward[name] for part in parts])
                for name in parts[0].by_reward
                if all(name in part.by_reward for part in parts)
            },
            torch.cat([part.failed for part in parts]),
            dict(reasons),
        )

    def metrics(self) -> dict[str, float]:
        """How many responses failed and why, and the mean of each reward where there are several."""
        means = {f"reward/{name}/mean": float(scores.nanmean()) for name, scores in self.by_reward.items()}
        return {
            "reward/failed": float(self.failed.sum()),
            **{f"reward/failed/{reason}": float(count) for reason, count in sorted(self.reasons.items())},
            **({name: mean for name, mean in means.items() if mean == mean} if len(means) > 1 else {}),
        }


class Scorer:
    """Scores responses. It may hold processes: close it, or use it in a `with` statement."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        """Raises ValueError for a rule that does not exist, for its options, and for a function that does not load."""
        names = reward_names(rewards)
        self.models: dict[str, str] = {name: reward.model for name, reward in names.items() if reward.model is not None}
        """Reward models by name, with their paths. They score on the ranks."""
        self._weights = {name: reward.weight for name, reward in names.items()}
        self._sources = {name: source(reward) for name, reward in names.items() if reward.model is None}

    def score(
        self,
        texts: Sequence[str],
        prompts: Sequence[Prompt],
        *,
        models: Mapping[str, Tensor] | None = None,
        environment: Tensor | None = None,
    ) -> Scores:
        """Score B responses, without end-of-text token, to their prompts.

        `models` has the scores [B] of each of self.models; `environment` those [B] of an environment that gives
        rewards. NaN in them is a failure. Raises TrainingError when no response at all could be scored.
        """
        outcomes: dict[str, list[Outcome]] = {}
        for name in self._weights:
            given = (models or {})[name] if name in self.models else None
            outcomes[name] = self._sources[name].outcomes(texts, prompts) if given is None else from_tensor(given)
        if environment is not None:
            outcomes[ENVIRONMENT] = from_tensor(environment)
        scores = combine(outcomes, {**self._weights, ENVIRONMENT: 1.0})
        _tell(outcomes, every=bool(scores.failed.all()))
        return scores

    def close(self) -> None:
        """End the processes."""
        for each in self._sources.values():
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reward_names(rewards: Sequence[Reward]) -> dict[str, Reward]:
    """A name for each: that of the rule, the function or the model's folder; the second of a name is NAME-2."""
    named: dict[str, Reward] = {}
    count: Counter[str] = Counter()
    for reward in rewards:
        name = reward.name or (reward.function.name if reward.function else Path(reward.model or "").name)
        count[name] += 1
        named[name if count[name] == 1 else f"{name}-{count[name]}"] = reward
    return named


def combine(outcomes: Mapping[str, Sequence[Outcome]], weights: Mapping[str, float]) -> Scores:
    """The weighted sum of the rewards' outcomes, each of which has one for every response."""
    by_reward = {
        name: torch.tensor([torch.nan if isinstance(each, Failure) else each for each in column])
        for name, column in outcomes.items()
    }
    total = torch.stack([weights[name] * scores for name, scores in by_reward.items()]).sum(0)
    failures = [
        f"{name}/{each.reason}" for name, column in outcomes.items() for each in column if isinstance(each, Failure)
    ]
    return Scores(total, by_reward, total.isnan(), dict(Counter(failures)))


def from_tensor(scores: Tensor) -> list[Outcome]:
    """Scores [B] that were made elsewhere; what is not finite is a failure."""
    values = [float(score) for score in scores]
    return [v if -torch.inf < v < torch.inf else Failure("not_finite", f"it returned {v}") for v in values]


def _tell(outcomes: Mapping[str, Sequence[Outcome]], *, every: bool) -> None:
    """Warn of failures, with the first one's message for each reward and reason; raise when `every` response failed."""
    sentences = []
    for name, column in outcomes.items():
        failures = [each for each in column if isinstance(each, Failure)]
        for reason in dict.fromkeys(failure.reason for failure in failures):
            first, *more = [failure for failure in failures if failure.reason == reason]
            sentences.append(f"reward {name} failed for {1 + len(more)} of {len(column)} responses: {first.message}")
    if every:
        raise TrainingError(f"No response of the batch could be scored: {'; '.join(sentences)}. Mend the reward.")
    for sentence in sentences:
        _log.warning("%s. They are left out of the learning.", sentence)
