"""One response of the policy, or all tokens of an episode."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlt_trainer.batches.routes import Routes

FinishReason = Literal["stop", "length", "abort"]
"""A stop token or stop string, the maximum length, or an interruption."""


@dataclass(frozen=True)
class Response:
    """The tokens of one response. In a conversation they include the environment's observations.

    The values of the tokens are arrays, 9 bytes for each token: millions of them go from the engines to the driver.
    """

    token_ids: Sequence[int]
    """int32. Empty only if the response was aborted before its first token."""
    log_probs: Sequence[float]
    """Per token, float32, under the distribution from which the engine sampled it: after temperature, top_k and top_p,
    with the weights at that time. 0 for tokens that were not sampled."""
    chosen: Sequence[bool] = ()
    """Per token, one byte: whether the policy sampled it. 0: part of an observation. Default: all 1."""
    num_turns: int = 1
    """Turns of the policy."""
    finish_reason: FinishReason = "stop"
    prompt: tuple[int, ...] | None = None
    """The tokens of an agent's request. None: the data's tokens."""
    earlier: tuple[Response, ...] = ()
    """The other sequences of an agent's episode, in the order of their first requests."""
    side: tuple[Response, ...] = ()
    """Requests of an agent's episode that are not trained on: environments/agent_transcript.py."""
    version: int | None = None
    """Of the weights at the arrival of the (first) request in its engine: the number of the policy's optimizer steps.
    Tokens may be from newer weights. None: no engine had a request."""
    routes: Routes | None = field(default=None, compare=False)
    """[N, L, k]: of all tokens of prompt and response but the last, which no engine computes. None: not reported
    (algorithm.routerReplay), or aborted before the first token."""

    @property
    def sequences(self) -> tuple[Response, ...]:
        """All sequences of the episode. The last one has the latest turn."""
        return (*self.earlier, self)

    @property
    def oldest_version(self) -> int | None:
        """The lowest version of the episode's sequences."""
        return min((each.version for each in self.sequences if each.version is not None), default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", array("i", self.token_ids))
        object.__setattr__(self, "log_probs", array("f", self.log_probs))
        object.__setattr__(self, "chosen", array("B", self.chosen or b"\1" * len(self.token_ids)))
        assert len(self.token_ids) == len(self.log_probs) == len(self.chosen)
