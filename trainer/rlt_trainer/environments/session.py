"""The other side of one conversation, as coroutines: an environment in its own process, or tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlt_trainer.data.prompt import Messages


class SessionError(Exception):
    """The environment or a tool failed, through no fault of the policy. The conversation counts as failed."""


@dataclass(frozen=True)
class SampledTurn:
    """One turn of the policy."""

    prompt: Sequence[int]
    """All tokens before it."""
    token_ids: Sequence[int]
    is_ended: bool
    """Whether its last token is an end-of-text token."""
    text: str
    """Its text without special tokens."""


@dataclass(frozen=True)
class Reply:
    """The reply to one turn of the policy."""

    messages: Messages
    """The observation: messages of the chat template. Plain-text prompts are followed by their contents."""
    reward: float | None = None
    """The reward of the turn, if there is one."""
    is_done: bool = False
    """Whether the conversation has ended. The policy does not receive the messages then."""


class Session(Protocol):
    """One conversation. All methods but `close` raise SessionError."""

    async def reset(self) -> Messages:
        """Start the conversation. Return an observation before the first turn, or nothing."""
        ...

    async def step(self, turn: SampledTurn) -> Reply:
        """Reply to one turn of the policy."""
        ...

    async def close(self) -> None:
        """End the conversation, also if a call is in progress."""
        ...
