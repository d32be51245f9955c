"""What happened in a sandbox: its programs, its files and its end, for the line of a rollout. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_PROGRAMS = 16
"""Maximum number of programs: the latest ones."""
MAX_COMMAND = 200
"""Maximum number of characters of a command."""
MAX_OUTPUT = 1000
"""Maximum number of characters of an output: the last ones, where tests print their summary."""
MAX_FILES = 50
MAX_PATH = 200
"""Maximum number of characters of a path. Longer ones are left out."""


@dataclass(frozen=True)
class Result:
    """The end of a program."""

    output: str
    """What it printed, up to 1 MiB."""
    problem: str
    """How it was ended, or why it did not start. Empty if it ended itself."""
    exit_code: int | None = None
    """None if it has a problem."""


class ProgramLog:
    """The latest programs of a sandbox."""

    def __init__(self) -> None:
        self._programs: deque[dict[str, Any]] = deque(maxlen=MAX_PROGRAMS)
        self._count = 0

    def add(self, command: Sequence[str], output: str, exit_code: int | None, problem: str) -> None:
        """Add a program that has ended."""
        end = {"problem": problem} if problem else {"exit_code": exit_code}
        self._programs.append({"command": " ".join(command)[:MAX_COMMAND], **end, "output": output[-MAX_OUTPUT:]})
        self._count += 1

    def describe(self) -> dict[str, Any]:
        """Return the programs, and how many there were."""
        return {"programs": list(self._programs), "num_programs": self._count}


def read_files(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return path and size of the files that a sandbox lists. A hostile program can have changed the answer."""
    given = answer.get("files")
    files = given[:MAX_FILES] if isinstance(given, list) else []
    return [{"path": each["path"], "size": each["size"]} for each in files if _is_file(each)]


def _is_file(given: Any) -> bool:
    if not isinstance(given, dict):
        return False
    path = given.get("path")
    return isinstance(path, str) and len(path) <= MAX_PATH and isinstance(given.get("size"), int)
