"""How a training ends that cannot go on, when neither the user's input nor the code is at fault."""

from __future__ import annotations

from pathlib import Path


class TrainingError(RuntimeError):
    """The training has to stop. The message is one sentence for people that says why and what to do."""


class NonFiniteGradientError(TrainingError):
    """The gradient was not finite in too many optimizer steps in a row: the training has diverged."""


class Terminated(Exception):
    """The training was asked to end (SIGTERM). The message says what is saved."""


def last_finite(error: NonFiniteGradientError, checkpoint: Path | None) -> NonFiniteGradientError:
    """The same error, naming the checkpoint to go on from.

    `checkpoint` is the newest whole one: a step that is skipped for its gradient changes no weight, so that all that
    was ever saved is finite.
    """
    advice = (
        f"The last finite checkpoint is {checkpoint}."
        if checkpoint is not None
        else "No checkpoint was saved: give checkpoint.saveFreq a number."
    )
    return NonFiniteGradientError(f"{root_cause(error)} {advice}")


def root_cause(error: BaseException) -> BaseException:
    """The error itself, where Ray wraps one that was raised in an actor."""
    cause = getattr(error, "cause", None)  # ray.exceptions.RayTaskError; Ray need not be imported yet
    return root_cause(cause) if isinstance(cause, BaseException) else error
