"""One task for the policy, before and after tokenization."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["train", "test"]
"""The part of a preset. train: for training. test: for evaluation."""
Messages = list[dict[str, str]]
"""A conversation: role and content of each message."""


@dataclass(frozen=True)
class Example:
    """A task as text."""

    prompt: str | Messages
    """Plain text, or a conversation for the tokenizer's chat template."""
    ground_truth: str
    """The answer that the reward rules compare with."""
    solution: str
    """A complete correct response, without end-of-text token: the target of the supervised warm-up."""
    data_source: str
    """verl's name of the data set."""
    extra_info: dict[str, Any] = field(default_factory=dict)
    """Further fields of verl's format, for reward functions."""
    images: tuple[bytes, ...] = ()
    """The encoded images, in the order of their marks in the prompt."""
    image_names: tuple[str, ...] = ()
    """A reference to each image (data.images.name_images)."""
    difficulty: float | None = None
    """The value of data.curriculum.column. None: no curriculum."""


@dataclass(frozen=True)
class Prompt:
    """A tokenized task."""

    index: int
    """The position in the data set, before any prompt is left out."""
    token_ids: tuple[int, ...]
    """The prompt with special tokens and generation prompt, without padding."""
    text: str
    """The prompt as text."""
    ground_truth: str
    """The answer that the reward rules compare with."""
    solution: str
    """A complete correct response, without end-of-text token: the target of the supervised warm-up."""
    data_source: str
    """verl's name of the data set."""
    messages: Messages | None = None
    """The conversation, if the prompt is one."""
    extra_info: dict[str, Any] = field(default_factory=dict)
    """Further fields of verl's format, for reward functions."""
    images: tuple[bytes, ...] = ()
    """The encoded images, in the order of their tokens."""
    image_names: tuple[str, ...] = ()
    """A reference to each image (data.images.name_images)."""
    difficulty: float | None = None
    """The value of data.curriculum.column. None: no curriculum."""
