"""The result of one optimizer step on one rank."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_trainer.batches.sequences import TokenValues


@dataclass(frozen=True)
class OwnPass:
    """What an update computed of its rows before it changed the policy."""

    row_numbers: tuple[int, ...]
    """Each row's number in the batch."""
    log_probs: TokenValues
    entropy: TokenValues


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
    own_pass: OwnPass | None = None
    """None: the old log-probabilities of all rows were given."""
