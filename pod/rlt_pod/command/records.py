"""The records of a program for `rlt metrics`, `rlt rollouts` and the run page, as rlt's trainer serves them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rlt_pod.command import verl_rollouts
from rlt_pod.report.kept_logs import list_logs, read_log
from rlt_pod.report.step_history import METRICS_FILE, read_history

JSON_LINES = "application/x-ndjson"


class Records:
    """Reads the records from the run directory, and the responses from verl's folder of them."""

    def __init__(self, run_directory: str, rollouts: str | None) -> None:
        self._run = Path(run_directory)
        self._rollouts = Path(rollouts) if rollouts else None
        self.paths = ("/history", "/logs", "/rollouts") if rollouts else ("/history", "/logs")
        """The paths of the server."""

    def respond(self, path: str, query: Mapping[str, str]) -> tuple[int, str, bytes]:
        """Status, content type and body of the response to a GET of one of `paths`."""
        for name in ("since", "step"):
            if not re.fullmatch("[0-9]{1,18}", query.get(name, "0")):
                return _text(400, f"{name}={query[name]} is not a step number")
        try:
            if path == "/history":
                return 200, JSON_LINES, read_history(self._run / METRICS_FILE, after=int(query.get("since", "0")))
            if path == "/logs":
                return self._read_log(query.get("file"))
            return self._read_rollouts(int(query["step"]) if "step" in query else None)
        except OSError as error:  # for example, the shared volume is not available
            return _text(503, f"{error.filename} cannot be read: {error.strerror}")

    def _read_log(self, file: str | None) -> tuple[int, str, bytes]:
        if file is None:
            return 200, JSON_LINES, list_logs(self._run)
        found = read_log(self._run, file)
        return _text(404, f"the run has no log {file}") if found is None else (200, "text/plain", found)

    def _read_rollouts(self, step: int | None) -> tuple[int, str, bytes]:
        assert self._rollouts
        latest = verl_rollouts.find_latest_step(self._rollouts)
        if latest is None:
            return _text(404, "the run has no responses yet")
        try:
            found = verl_rollouts.read_rollouts(self._rollouts, latest if step is None else step)
        except ValueError as error:
            return _text(413, str(error))
        if found is None:
            return _text(404, f"step {step} has no responses; the latest are of step {latest}")
        return 200, JSON_LINES, found


def _text(status: int, text: str) -> tuple[int, str, bytes]:
    return status, "text/plain", f"{text}\n".encode()
