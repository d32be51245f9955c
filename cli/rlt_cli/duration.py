"""Times on the command line, as kubectl has them: 30s, 10m, 1h30m; a plain number is seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_DURATION = re.compile("".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS))


@dataclass(frozen=True)
class Duration:
    """A length of time, with the user's own words for it."""

    text: str
    seconds: float


def duration(text: str) -> Duration:
    """The `type` of an option. Raises BadParameter."""
    if re.fullmatch(_NUMBER, text):
        text += "s"
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise click.BadParameter(f"{text!r} is no length of time: write 90s, 30m or 1h30m; a plain number is seconds.")
    return Duration(
        text, sum(float(number or 0) * unit for number, unit in zip(found.groups(), _UNITS.values(), strict=True))
    )
