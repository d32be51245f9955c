"""The result of one optimizer step on one rank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateResult:
    """The result of one optimizer step on one rank."""

    shares: dict[str, float]
    """verl's metric name -> this rank's share. The metric is the sum of all ranks' shares."""
    grad_norm: float
    """Norm of the gradient over all ranks' parameters, before clipping."""
    skipped: bool
    """Whether the optimizer step was skipped because the norm is not finite."""
    learning_rate: float
    """Learning rate of the optimizer step."""
