"""What the training loop wants of a rollout engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float
    top_p: float
    max_tokens: int
    """The longest response, end-of-text token included."""
    stop_token_ids: tuple[int, ...]
    """Tokens that end a response, and belong to it."""


@dataclass(frozen=True)
class Response:
    """One response."""

    token_ids: tuple[int, ...]
    """At least one token."""
    log_probs: tuple[float, ...]
    """Of each token, under the distribution that it was drawn from: after temperature and top_p."""


class RolloutEngine(Protocol):
    """Generates on one rank, in that rank's own process."""

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> list[Response]:
        """One response to each prompt. A response depends on its own seed, not on the rest of the batch."""
        ...

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability at temperature 1 of each token but the first, as the engine's weights have it."""
        ...

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take the policy's weights, and forget what was computed with the earlier ones."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...
