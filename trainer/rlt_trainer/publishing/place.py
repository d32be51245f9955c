"""What a place for a published model has in common: a repository on the hub, a prefix in a bucket,
or an image in a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rlt_trainer.errors import TrainingError


class PublishError(TrainingError):
    """A place rejects the model. The message names field, value and fix."""

    def __init__(self, field: str, value: str, problem: str, fix: str) -> None:
        super().__init__(f"{field}: {value}: {problem}; {fix}.")


class Place(Protocol):
    """A place for the files of one model."""

    url: str
    """Where the model is, for people."""

    def check(self) -> None:
        """Verify credentials and access before the training, and write nothing that stays.

        Raises PublishError.
        """
        ...

    def publish(self, folder: Path) -> str:
        """Publish all files of the folder in place of an earlier version, and return the revision.

        Nothing is done if the place has these files already. After a failure, the place has the earlier version or is
        marked as incomplete, and the next call continues. Raises PublishError.
        """
        ...


def list_names(folder: Path) -> list[str]:
    """List the files of a folder by their paths in it, with config.json last: no program loads a model without it."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(names, key=lambda name: (name == "config.json", name))
