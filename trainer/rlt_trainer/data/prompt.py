"""One task for the policy, as every data preset makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["train", "test"]
"""What is learned on, and what is validated on."""
Messages = list[dict[str, str]]
"""A conversation: role and content of each message."""


@dataclass(frozen=True)
class Example:
    """A task in words: what is asked and what is right."""

    prompt: str | Messages
    """Plain text, or a conversation for the tokenizer's chat template."""
    ground_truth: str
    """What the reward rules compare with."""
    solution: str
    """A right response in full, without end-of-text token: the target of the supervised warm-up."""
    data_source: str
    """verl's name of the data set."""
    extra_info: dict[str, Any] = field(default_factory=dict)
    """What else verl's format says of it, for reward functions."""


@dataclass(frozen=True)
class Prompt:
    """A task in tokens."""

    index: int
    """Its place in the data set, before anything was left out."""
    token_ids: tuple[int, ...]
    """The prompt, marks and generation prompt included, without padding."""
    text: str
    """The same as text."""
    ground_truth: str
    """What the reward rules compare with."""
    solution: str
    """A right response in full, without end-of-text token: the target of the supervised warm-up."""
    data_source: str
    """verl's name of the data set."""
    messages: Messages | None = None
    """The conversation, where the prompt is one."""
    extra_info: dict[str, Any] = field(default_factory=dict)
    """What else verl's format says of it, for reward functions."""
