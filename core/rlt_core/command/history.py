"""The metrics of each step in the run directory, as rlt's trainer keeps them, so that the run page shows both."""

from __future__ import annotations

from pathlib import Path

from rlt_api.step_history import format_step, read_history
from rlt_core.command.console import Progress
from rlt_core.command.log_file import LogFile


class History:
    """A file of bounded size with a line for each step: see rlt_api.step_history and LogFile."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = LogFile(path)

    def record(self, before: Progress, after: Progress) -> None:
        """Append the metrics of the latest step if they have changed. Does not block."""
        if after.metrics and after.metrics is not before.metrics:
            self._file.write(format_step(after.step, after.metrics))

    def read(self, after: int) -> bytes:
        """The lines of the steps after `after`, also of earlier attempts. Raises OSError."""
        return read_history(self._path, after=after)

    def close(self) -> None:
        """Write what is left to the file."""
        self._file.close()
