"""The scores of a batch of responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """The rewards of B responses."""

    total: Tensor
    """[B], float32: the weighted sum. NaN if a reward failed."""
    by_reward: dict[str, Tensor]
    """Name -> unweighted scores: [B], float32, NaN if the reward failed."""
    failed: Tensor
    """[B], bool: a reward of this response failed. The response is left out of the update."""
    reasons: dict[str, int]
    """ "NAME/REASON" -> number of responses. The reasons are those of rewards.outcome."""

    def rows(self, rows: Tensor) -> Self:
        """Select responses. `reasons` stays the same: failures of responses that are not selected also count."""
        by_reward = {name: scores[rows] for name, scores in self.by_reward.items()}
        return replace(self, total=self.total[rows], by_reward=by_reward, failed=self.failed[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Concatenate scores of one Scorer. An environment's rewards are kept only if all parts have them."""
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
        """Return the number of failed responses by reason, and the mean of each reward if there are several."""
        means = {f"reward/{name}/mean": float(scores.nanmean()) for name, scores in self.by_reward.items()}
        return {
            "reward/failed": float(self.failed.sum()),
            **{f"reward/failed/{reason}": float(count) for reason, count in sorted(self.reasons.items())},
            **({name: mean for name, mean in means.items() if mean == mean} if len(means) > 1 else {}),
        }
