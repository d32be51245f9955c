"""The scores of the responses in a batch."""

from __future__ import annotations

from dataclasses import dataclass

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
    """ "NAME/REASON" -> number of responses. The reasons are from rewards.outcome."""
    failures: tuple[str | None, ...] = ()
    """[B]: name and message of the first reward that failed, such as the loss of a sandbox. None without a failure."""

    def metrics(self) -> dict[str, float]:
        """Return the number of failed responses by reason, and the mean of each reward if there are several."""
        means = {f"reward/{name}/mean": float(scores.nanmean()) for name, scores in self.by_reward.items()}
        return {
            "reward/failed": float(self.failed.sum()),
            **{f"reward/failed/{reason}": float(count) for reason, count in sorted(self.reasons.items())},
            **({name: mean for name, mean in means.items() if mean == mean} if len(means) > 1 else {}),
        }
