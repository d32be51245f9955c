"""How a training ends that cannot go on, when neither the user's input nor the code is at fault."""

from __future__ import annotations


class TrainingError(RuntimeError):
    """The training has to stop. The message is one sentence for people that says why and what to do."""
