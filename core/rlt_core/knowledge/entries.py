"""The knowledge base: one entry for each known failure, from entries/*.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rlt_core.knowledge.pattern import Pattern, compile_pattern

SEVERITIES = ("error", "warning", "wrapper")
"""An error ends a run. A warning may explain one. A wrapper reports that another process failed: its cause is earlier
in the log, or in another log."""
REQUIRED = ("code", "message", "remedy", "source")


@dataclass(frozen=True)
class Entry:
    """One known failure."""

    code: str
    """Unique name, in the form of a condition's reason."""
    topic: str
    """Name of the entry's file."""
    patterns: tuple[Pattern, ...]
    """What logs, events and containers print. Empty if only `observation` shows the failure."""
    message: str
    """What happened, and why."""
    remedy: str
    """What to do, with the field to change."""
    source: str
    """URL of the explanation."""
    priority: int
    """Of two errors, the one with the higher priority is the cause: hardware 90, configuration 80, memory 70, start of
    Ray 60, network 50, checkpoints 40, others 30. A full status leaves out the rule over metrics with
    the lowest priority."""
    severity: str = "error"
    unless: tuple[str, ...] = ()
    """Texts of lines that do not match."""
    unless_above: tuple[str, ...] = ()
    """Texts of the lines above, within `NEARBY` bytes, that show that the program handled the error."""
    compares_ranks: bool = False
    """Whether the lines of all ranks are read, because a rank without the line is the cause."""
    at_end: bool = False
    """Whether a line counts only if the log ends with it."""
    until: tuple[str, ...] = ()
    """Texts of later lines that show that the failure is over."""
    persists: bool = False
    """Whether an error counts although the program completes a step after it."""
    continued: bool = False
    """Whether the evidence has the next lines of the message."""
    observation: str = ""
    """The symptom, if no text shows the failure."""


@cache
def load_entries() -> tuple[Entry, ...]:
    """Load all entries, ordered by topic and code. Raises ValueError for an invalid entry."""
    files = sorted(
        (each for each in (resources.files(__package__) / "entries").iterdir() if each.name.endswith(".toml")),
        key=lambda each: each.name,
    )
    return check_entries(
        [
            parse_entry(table, file.name.removesuffix(".toml"), document["priority"])
            for file in files
            for document in [tomllib.loads(file.read_text(encoding="utf-8"))]
            for table in document["entry"]
        ]
    )


def parse_entry(table: Mapping[str, Any], topic: str, priority: int) -> Entry:
    """Read an entry of a file with this topic and default priority. Raises ValueError if it is not valid."""
    name = f"{topic}.toml, entry {table.get('code')}"
    for key in REQUIRED:
        if not str(table.get(key, "")).strip():
            raise ValueError(f"{name}: {key} is empty: write it")
    if unknown := table.keys() - Entry.__dataclass_fields__.keys():
        raise ValueError(f"{name}: {', '.join(sorted(unknown))}: not a field of an entry")
    if not table.get("patterns") and not table.get("observation"):
        raise ValueError(f"{name}: has neither patterns nor an observation")
    if table.get("severity", "error") not in SEVERITIES:
        raise ValueError(f"{name}: severity {table['severity']} is not one of {', '.join(SEVERITIES)}")
    if not table["source"].startswith("https://"):
        raise ValueError(f"{name}: source {table['source']} is not an https URL")
    try:
        patterns = tuple(map(compile_pattern, table.get("patterns", [])))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    lists = {key: tuple(table.get(key, ())) for key in ("unless", "unless_above", "until")}
    return Entry(**{"priority": priority, **table, **lists, "topic": topic, "patterns": patterns})


def check_entries(entries: list[Entry]) -> tuple[Entry, ...]:
    """Check that codes are unique, and sort the entries. Raises ValueError."""
    codes = {entry.code for entry in entries}
    if len(codes) < len(entries):
        twice = sorted(code for code in codes if sum(entry.code == code for entry in entries) > 1)
        raise ValueError(f"codes of several entries: {', '.join(twice)}")
    return tuple(sorted(entries, key=lambda each: (each.topic, each.code)))
