"""The lease of a run directory: of several programs that write to it, the one of the latest attempt may.

RUN/executions/N has the ID of the Ray job that runs attempt N. A program takes the lease in four steps: it looks for
a higher number, writes its file, looks again, and overwrites the files of all lower numbers. Of two programs that do
this at the same time, either the later attempt finds the file of the earlier one and overwrites it, or the earlier one
finds the file of the later one and stops. Before each write to the run directory, a program reads its file: with other
content, the lease is lost. The write that follows is not atomic with this check, so that the later attempt also waits
for the end of the earlier one's processes before it takes the lease (driver/earlier_processes.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rlt_trainer.errors import TrainingError

FOLDER = "executions"
"""The folder of the leases in the run directory."""


class LeaseLostError(TrainingError):
    """A later attempt writes to the run directory."""


@dataclass(frozen=True)
class Lease:
    """The right of one program to write to a run directory. The workers get a copy of the driver's."""

    run_directory: Path
    attempt: int
    """Number of the attempt. A later one, also on another Ray cluster, has a higher number."""
    holder: str
    """ID of the Ray job. A resumed job continues its attempt with another Ray job, which gets the lease."""

    @classmethod
    def take(cls, run_directory: Path, attempt: int, holder: str) -> Lease:
        """Take the lease. Raises LeaseLostError if a later attempt has it, and OSError."""
        lease = cls(run_directory, attempt, holder)
        lease._file.parent.mkdir(parents=True, exist_ok=True)
        lease._list_earlier()
        _overwrite(lease._file, holder)
        for earlier in lease._list_earlier():
            _overwrite(earlier, f"ended by attempt {attempt}, {holder}")
        return lease

    def check(self) -> None:
        """Raise LeaseLostError if the program may not write to the run directory any more. Raises OSError."""
        found = self._file.read_text(encoding="utf-8").strip()
        if found != self.holder:
            raise self._lost(found)

    @property
    def _file(self) -> Path:
        return self.run_directory / FOLDER / str(self.attempt)

    def _list_earlier(self) -> list[Path]:
        """Return the files of earlier attempts. Raises LeaseLostError if there is one of a later attempt."""
        files = {int(path.name): path for path in self._file.parent.iterdir() if path.name.isdecimal()}
        latest = max(files, default=0)
        if latest > self.attempt:
            raise self._lost(f"attempt {latest}")
        return [path for number, path in sorted(files.items()) if number < self.attempt]

    def _lost(self, found: str) -> LeaseLostError:
        return LeaseLostError(
            f"Attempt {self.attempt} ({self.holder}) has lost the lease of {self.run_directory} ({found}): a later "
            "attempt of the job writes to this run directory. Nothing is to be done: the later attempt continues."
        )


def _overwrite(path: Path, content: str) -> None:
    """Write the file in place and flush it: NFS shows the content to a program that opens the file afterwards."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{content}\n")
        file.flush()
        os.fsync(file.fileno())
