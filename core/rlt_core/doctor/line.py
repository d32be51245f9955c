"""One line of `rlt doctor`: a topic, its state, what was found and what fixes it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from rlt_core.doctor.facts import Reading

MAX_NAMES = 3
"""Names in a message. The number of the others follows."""
RIGHTS = "docs/doctor.md#required-rights"


class State(StrEnum):
    """Whether RL post-training works with what was found."""

    OK = "ok"
    WARNING = "warning"
    """Some jobs do not work, or are slow."""
    ERROR = "error"
    """No job works, or none on accelerators."""
    UNKNOWN = "unknown"
    """It could not be read."""


@dataclass(frozen=True)
class Line:
    """What was found about one topic."""

    topic: str
    state: State
    message: str
    fix: str | None = None
    """A command, or a page. None if there is nothing to do."""


def ok(topic: str, message: str) -> Line:
    """Nothing to do."""
    return Line(topic, State.OK, message)


def warning(topic: str, message: str, fix: str) -> Line:
    """Some jobs do not work, or are slow."""
    return Line(topic, State.WARNING, message, fix)


def error(topic: str, message: str, fix: str) -> Line:
    """No job works, or none on accelerators."""
    return Line(topic, State.ERROR, message, fix)


def unknown(topic: str, message: str, fix: str) -> Line:
    """It could not be read."""
    return Line(topic, State.UNKNOWN, message, fix)


def explain_unread(topic: str, reading: Reading) -> Line:
    """The line of a reading that is not `known`."""
    if reading.forbidden:
        return unknown(topic, f"Your account lacks the right to {reading.forbidden}.", RIGHTS)
    return unknown(topic, f"The API server did not send it: {reading.failed}.", "rlt doctor")


def join_names(names: Collection[str]) -> str:
    """For example "a, b, c and 5 more"."""
    shown = sorted(names)
    more = f" and {len(shown) - MAX_NAMES} more" if len(shown) > MAX_NAMES else ""
    return ", ".join(shown[:MAX_NAMES]) + more


def count(number: int, noun: str) -> str:
    """For example "1 node" and "2 nodes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
