"""The metrics of each step in the run directory, as rlt's trainer keeps them, so that the run page shows both."""

from __future__ import annotations

from rlt_pod.command.console import Progress
from rlt_pod.command.log_file import LogFile
from rlt_pod.report.step_history import METRICS_FILE, format_step


class History:
    """A file of bounded size with a line for each step: see rlt_pod.report.step_history and LogFile."""

    def __init__(self, run_directory: str) -> None:
        self._file = LogFile(f"{run_directory}/{METRICS_FILE}")

    def record(self, before: Progress, after: Progress) -> None:
        """Append the metrics of the latest step if they have changed. Does not block."""
        if after.metrics and after.metrics is not before.metrics:
            self._file.write(format_step(after.step, after.metrics))

    def close(self) -> None:
        """Write what is left to the file."""
        self._file.close()
