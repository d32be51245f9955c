"""The environment and the tool of the bench. Every process of a tool imports this module, so that it imports little."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlt_trainer.data.prompt import Prompt

TOOL_S = 0.1


class Waiting:
    """An Environment that waits."""

    def reset(self, prompt: Prompt) -> None:
        """As in Environment."""

    def step(self, response: str) -> tuple[str, float | None, bool]:
        """As in Environment."""
        time.sleep(TOOL_S)
        return "x", None, False


def wait(text: str) -> str:
    """Wait.

    Args:
        text: Any text.
    """
    time.sleep(TOOL_S)
    return text
