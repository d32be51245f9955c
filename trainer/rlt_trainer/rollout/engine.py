"""What the training loop wants of a rollout engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Protocol

from torch import Tensor

from rlt_trainer.batches.response import Response
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.weight_sums import Sums


class EngineError(TrainingError):
    """The rollout engine failed. The message says what to do."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float
    """0 is greedy: the most probable token."""
    top_p: float
    max_tokens: int
    """The longest response, end-of-text token included."""
    stop_token_ids: tuple[int, ...]
    """Tokens that end a response, and belong to it."""
    top_k: int = -1
    """The so many most probable tokens. -1: all."""

    def greedy(self) -> Sampling:
        """The same without chance: for validation and for ReMax's baseline."""
        return replace(self, temperature=0.0, top_p=1.0, top_k=-1)


class RolloutEngine(Protocol):
    """Generates in the caller's process."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: Event | None = None,
    ) -> list[Response]:
        """One response to each prompt. A response depends on its own seed, not on the rest of the batch.

        Without `sampling` as the engine was told when it was made. `max_tokens`, of each request, takes the place of
        sampling.max_tokens. When `interrupt` is set, the responses that still run end with the tokens that they have.
        Raises EngineError.
        """
        ...

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability at temperature 1 of each token but the first, as the engine's weights have it."""
        ...

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Take the policy's weights, and forget what was computed with the earlier ones.

        `weights` is consumed to its end, and no more than one layer of it is held at a time.
        """
        ...

    def weight_sums(self) -> Sums:
        """Of the weights that it computes with: those of what was sent last, or where it keeps that in a form of its
        own, others, which change when it does."""
        ...

    def sleep(self) -> None:
        """Give memory back until the next update_weights, where that is possible (rollout.freeCacheEngine)."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...


def continuation_seed(seed: int, drawn: int) -> int:
    """The seed with which a response goes on after `drawn` tokens: after an observation, or an interruption.

    The first token's seed is `seed` itself. Hashed, so that no two responses of a batch share a stream.
    """
    if drawn == 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {drawn}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")
