"""The interface of a rollout engine."""

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
    """The rollout engine failed. The message contains a fix."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters."""

    temperature: float
    """0 is greedy: always the most probable token."""
    top_p: float
    max_tokens: int
    """Maximum number of tokens of a response, including the EOS token."""
    stop_token_ids: tuple[int, ...]
    """Tokens that end a response. The response includes them."""
    top_k: int = -1
    """Number of most probable tokens to sample from. -1: all."""

    def greedy(self) -> Sampling:
        """Return greedy sampling with the same limits, for validation and ReMax's baseline."""
        return replace(self, temperature=0.0, top_p=1.0, top_k=-1)


class RolloutEngine(Protocol):
    """An engine that generates in the caller's process."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling | None = None,
        *,
        max_tokens: Sequence[int] | None = None,
        interrupt: Event | None = None,
    ) -> list[Response]:
        """Generate one response to each prompt. A response depends on its seed, not on the rest of the batch.

        sampling: default: the sampling that the engine was created with.
        max_tokens: per request, overrides sampling.max_tokens.
        interrupt: when it is set, unfinished responses end with the tokens generated so far.
        Raises EngineError.
        """
        ...

    def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token but the first, at temperature 1, under the engine's weights."""
        ...

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Load the policy's weights, and drop caches that were computed with earlier weights.

        Consumes all of `weights`, and holds at most one layer of it at a time.
        """
        ...

    def sum_weights(self) -> Sums:
        """Return the sums over the weights that the engine computes with.

        They equal the sums over the weights that were sent last, unless the engine stores a layer in another format.
        Then they differ, and change exactly when the weights do.
        """
        ...

    def sleep(self) -> None:
        """Free memory until the next update_weights, if the engine supports it (rollout.freeCacheEngine)."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def derive_seed(seed: int, generated: int) -> int:
    """Derive the seed to continue a response after `generated` tokens: after an observation, or an interruption.

    Without generated tokens it is `seed`. The hash keeps the random streams of a batch's responses distinct.
    """
    if generated == 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {generated}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")
