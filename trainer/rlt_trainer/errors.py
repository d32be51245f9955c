"""Errors that stop a training and are caused neither by invalid input nor by a bug."""

from __future__ import annotations

from pathlib import Path


class TrainingError(RuntimeError):
    """The training cannot continue. The message gives the reason and the fix."""


class NonFiniteGradientError(TrainingError):
    """The gradient was not finite in too many consecutive optimizer steps: the training diverged."""


class Terminated(Exception):
    """The training received SIGTERM. The message names the saved checkpoint."""


def add_checkpoint(error: NonFiniteGradientError, checkpoint: str | Path | None) -> NonFiniteGradientError:
    """Return the same error with the checkpoint to resume from in its message.

    `checkpoint` is the latest complete one. It is finite: a step that is skipped for its gradient changes no weight.
    """
    advice = (
        f"The last finite checkpoint is {checkpoint}."
        if checkpoint is not None
        else "No checkpoint was saved: set checkpoint.saveFreq."
    )
    return NonFiniteGradientError(f"{root_cause(error)} {advice}")


def root_cause(error: BaseException) -> BaseException:
    """Return the original error if Ray wraps one that an actor raised."""
    cause = getattr(error, "cause", None)  # ray.exceptions.RayTaskError, without an import of Ray
    return root_cause(cause) if isinstance(cause, BaseException) else error
