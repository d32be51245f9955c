"""The interface of a rollout engine: requests are sampled at the same time, in a separate process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from prometheus_client.core import Metric

from rlt_trainer.batches.response import Response
from rlt_trainer.errors import TrainingError
from rlt_trainer.rollout.weight_channel import ChannelAddress, Received
from rlt_trainer.rollout.weight_sums import Sums


class EngineError(TrainingError):
    """The rollout engine failed. The message contains a fix."""


class EngineDiedError(EngineError):
    """The engine has ended, for example because the kernel killed one of its processes. It must be started again."""


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
    min_p: float = 0.0
    """Minimum probability, as a share of the most probable token's. 0: none."""
    stop: tuple[str, ...] = ()
    """Texts that end a response. The response includes them, and the whole token that completes one of them."""

    def greedy(self) -> Sampling:
        """Return greedy sampling with the same limits, for validation and ReMax's baseline."""
        return replace(self, temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0)


@dataclass(frozen=True)
class Request:
    """A request for one response."""

    number: int
    """Unique in a run."""
    prompt: Sequence[int]
    seed: int
    sampling: Sampling
    max_tokens: int
    images: tuple[bytes, ...] = ()
    """The encoded images of the prompt, whose tokens stand for their parts."""


Done = Callable[[int, Response | EngineError], None]
"""Takes the number of a request and its response, which has the finish reason "abort" if it was aborted. A request that
the engine rejects has an error, EngineDiedError if the engine has ended."""
Part = Literal["weights", "kv_cache"]
"""The parts of an engine's memory, by vLLM's names."""


class RolloutEngine(Protocol):
    """An engine of the process that calls it. All calls are made by one event loop."""

    async def start(self) -> int:
        """Start the engine. Return the number of requests that it runs at the same time. Raises EngineError."""
        ...

    async def submit(self, requests: Sequence[Request], done: Done) -> None:
        """Add requests, and return. `done` is called for each when it ends.

        An idle engine schedules all of them in its next step, in order: their log-probabilities are then reproducible
        bit for bit on CPUs. A response depends on its seed, not on other requests, up to rounding.
        """
        ...

    async def abort(self, numbers: Sequence[int]) -> None:
        """End requests with the tokens generated so far."""
        ...

    async def pause(self) -> None:
        """Stop generating. Requests keep their tokens. New ones wait."""
        ...

    async def resume(self) -> None:
        """Continue after `pause`."""
        ...

    async def sleep(self) -> None:
        """Release the memory of a paused engine, if it supports that (rollout.freeCacheEngine)."""
        ...

    async def wake(self, part: Part) -> None:
        """Allocate a part of the memory again. The weights are undefined until they are received."""
        ...

    async def open_channel(self, addresses: Sequence[ChannelAddress]) -> None:
        """Connect to the senders of weights: one address for each device of the engine."""
        ...

    async def receive_weights(self) -> Received:
        """Receive the weights from the channel, while the engine is paused. Return what the engine has now.

        Values that were computed with earlier weights are dropped. Requests continue with the new weights, from the
        tokens generated so far.
        """
        ...

    async def sum_weights(self) -> Sums:
        """Return the sums over the weights that the engine computes with, added over its devices.

        The sums of weights equal the sums over the weights that were sent last, once for each replica. The sums of
        parts do so unless the engine has replicas or stores a layer in another format. Then they change exactly when
        the weights do.
        """
        ...

    async def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token but the first, at temperature 1. The engine must not be paused."""
        ...

    def read_metrics(self) -> list[Metric]:
        """Read the engine's own metrics. Their names and labels are the engine's."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def derive_seed(seed: int, generated: int) -> int:
    """Derive the seed to continue a conversation after `generated` tokens.

    Without generated tokens it is `seed`. The hash keeps the random streams of a batch's responses distinct.
    """
    if generated == 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {generated}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")
