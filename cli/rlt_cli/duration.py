"""Durations on the command line, in kubectl's format: 30s, 10m, 1h30m. A number without a unit means seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile("".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS))


@dataclass(frozen=True)
class Duration:
    """A duration, and its text for messages."""

    text: str
    seconds: float


def parse_duration(text: str) -> Duration:
    """Parse the value of an option: its click `type`. Raises BadParameter."""
    if re.fullmatch(_NUMBER, text):
        text += "s"
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise click.BadParameter(f"{text!r} is not a duration: use 90s, 30m or 1h30m; a plain number means seconds.")
    return Duration(
        text, sum(float(number or 0) * unit for number, unit in zip(match.groups(), _UNITS.values(), strict=True))
    )
