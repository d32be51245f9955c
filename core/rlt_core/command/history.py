"""The metrics of each step in the run directory, as rlt's trainer keeps them, so that the run page shows both."""

from __future__ import annotations

from rlt_api.step_history import METRICS_FILE, format_step
from rlt_core.command.console import Progress
from rlt_core.command.log_file import LogFile


class History:
    """A file of bounded size with a line for each step: see rlt_api.step_history and LogFile."""

    def __init__(self, run_directory: str) -> None:
        self._file = LogFile(f"{run_directory}/{METRICS_FILE}")

    def record(self, before: Progress, after: Progress) -> None:
        """Append the metrics of the latest step if they have changed. Does not block."""
        if after.metrics and after.metrics is not before.metrics:
            self._file.write(format_step(after.step, after.metrics))

    def close(self) -> None:
        """Write what is left to the file."""
        self._file.close()
