"""What an environment is: one conversation's other side."""

from __future__ import annotations

from typing import Protocol

from rlt_trainer.data.prompt import Prompt

Step = tuple[str, float | None, bool]
"""What the environment answers, a reward for the turn or None, and whether the conversation is over."""


class Environment(Protocol):
    """One is made for each conversation, without arguments, and lives as long. It runs in the process that generates,
    in a thread beside it, and may take rollout.multiTurn.timeoutSeconds for each answer.

    What it raises ends the conversation, whose response is left out of the learning and counted.
    """

    def reset(self, prompt: Prompt) -> str | None:
        """Begin. What is returned stands before the first turn, as an observation. None: nothing does.

        In a chat the prompt already ends where the assistant speaks, so that the observation follows a turn in which
        the assistant says nothing. What belongs to the prompt should stand in the data.
        """
        ...

    def step(self, response: str) -> Step:
        """Answer one turn of the policy, without end-of-text token. The last answer is not shown to it.

        The rewards of a conversation are added up, and the sum is added to those of spec.rewards. Where all are None
        the environment gives no reward.
        """
        ...
