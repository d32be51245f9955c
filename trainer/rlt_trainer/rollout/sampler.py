"""The interface of a request for one response, which conversations and agents are written against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rlt_trainer.batches.response import Response
from rlt_trainer.rollout.engine import Sampling


class Sampler(Protocol):
    """Samples responses from the policy. Requests run at the same time: callers are coroutines of one event loop."""

    async def sample(
        self, prompt: Sequence[int], *, seed: int, sampling: Sampling, max_tokens: int | None = None
    ) -> Response:
        """Sample one response to the tokens `prompt`. It depends on the seed, not on the other requests.

        max_tokens: overrides sampling.max_tokens. The response is complete: its finish reason is "stop" or "length",
        also if the weights change while it is generated.
        Raises EngineError.
        """
        ...
