"""The settings of a run that every check receives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Where and at what size a check runs."""

    folder: Path
    """For files of the check. It is empty at the start."""
    rehearse: bool
    """Run the same code on CPUs with small shapes."""

    @property
    def device(self) -> str:
        """The type of the device: cuda or cpu."""
        return "cpu" if self.rehearse else "cuda"

    def choose(self, on_gpu: T, on_cpu: T) -> T:
        """Return the first value on a GPU, and the second in a rehearsal."""
        return on_cpu if self.rehearse else on_gpu
