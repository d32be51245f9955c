"""What an optimizer step says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateResult:
    """What one optimizer step says of itself."""

    shares: dict[str, float]
    """verl's metric -> this rank's share; the ranks' shares add up to the metric."""
    grad_norm: float
    """Norm of the gradient over all ranks' parameters, before clipping."""
    skipped: bool
    """Whether the step was left out because the norm is not finite."""
    learning_rate: float
    """With which it was made."""
