"""Images in prompts: each takes the place of a mark in the text, and has a token for each of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlt_trainer.data.image_processor import ImageProcessor
from rlt_trainer.data.prompt import Messages

IMAGE_MARK = "<image>"
"""The place of an image in a prompt, as in verl (verl/utils/dataset/rl_dataset.py)."""


def place_images(messages: Messages, images: int, *, row: int) -> list[dict[str, Any]]:
    """Replace the marks `<image>` in messages by the parts of content that chat templates know.

    Raises ValueError, naming the prompt `row`, if the messages do not have `images` marks.
    """
    marks = sum(message["content"].count(IMAGE_MARK) for message in messages)
    if marks != images:
        raise ValueError(
            f"Prompt {row} has {images} images in the column of data.imageKey and {marks} marks {IMAGE_MARK} in its "
            "text: add or remove marks, so that each image has one."
        )
    return [{**message, "content": _split_content(message["content"])} for message in messages]


def expand_images(token_ids: list[int], images: Sequence[bytes], processor: ImageProcessor) -> list[int]:
    """Repeat the token of each image as often as the image has parts.

    Raises ValueError if the chat template did not render one token for each image.
    """
    if (found := token_ids.count(processor.token)) != len(images):
        raise ValueError(
            f"The chat template renders {found} image tokens for a prompt with {len(images)} images. Set "
            "data.chatTemplate to the template of the model's family, or remove image tokens from the prompts."
        )
    counts = iter([processor.count_tokens(image) for image in images])
    return [
        token for token_id in token_ids for token in [token_id] * (next(counts) if token_id == processor.token else 1)
    ]


def _split_content(content: str) -> str | list[dict[str, str]]:
    if IMAGE_MARK not in content:
        return content
    texts = content.split(IMAGE_MARK)
    parts = [part for text in texts for part in ({"type": "image"}, {"type": "text", "text": text})][1:]
    return [part for part in parts if part.get("text") != ""]
