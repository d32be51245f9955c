"""One response of the policy, or all tokens of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]
"""A stop token, the maximum length, or an interruption."""


@dataclass(frozen=True)
class Response:
    """The tokens of one response. In a conversation they include the environment's observations."""

    token_ids: tuple[int, ...]
    """Empty only if the response was aborted before its first token."""
    log_probs: tuple[float, ...]
    """Per token, under the distribution from which the engine sampled it: after temperature, top_k and top_p, with the
    weights at that time. 0 for tokens that were not sampled."""
    chosen: tuple[bool, ...] = ()
    """Per token, whether the policy sampled it. False: part of an observation. Default: all True."""
    num_turns: int = 1
    """Turns of the policy."""
    finish_reason: FinishReason = "stop"
    prompt: tuple[int, ...] | None = None
    """The tokens of an agent's request. None: those of the data."""
    earlier: tuple[Response, ...] = ()
    """The other sequences of an agent's episode, in the order of their first requests."""

    @property
    def sequences(self) -> tuple[Response, ...]:
        """All sequences of the episode. The last one has the latest turn."""
        return (*self.earlier, self)

    def __post_init__(self) -> None:
        object.__setattr__(self, "chosen", self.chosen or (True,) * len(self.token_ids))
        assert len(self.token_ids) == len(self.log_probs) == len(self.chosen)
