"""What a run recorded about its suites beside the metrics: gates, scores, and the prompts whose score has changed.

The trainer writes them to its run directory. They are data of a user's program: what is invalid is left out, and named
in notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlt_api.spec.suite_changes import SuiteChanges
from rlt_api.spec.suite_scores import SuiteScores
from rlt_api.spec.training_config import GateResult

FOLDER = "evaluation"
GATES = f"{FOLDER}/gates.json"
CHANGES = "changes.json"
SCORES = "scores.json"
MAX_SUITES = 16
"""Maximum number of items of spec.evaluation."""
MAX_BYTES = 2**20
"""Maximum size of a file: texts of 4 bytes a character have two thirds of it."""
MAX_SCORES_BYTES = 4 * 2**20
"""The same for scores, of which a prompt has at most 60 bytes."""


def read_gates(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The results of a run directory's gates: suite, passed (None: unknown) and evidence."""
    text = _read(path / GATES, notes)
    if text is None:
        return []
    try:
        found = [
            GateResult.model_validate({"suite": suite, "passed": gate["passed"], "evidence": gate["evidence"]})
            for suite, gate in islice(json.loads(text)["gates"].items(), MAX_SUITES)
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        notes.append(f"{GATES} cannot be read.")
        return []
    return [each.model_dump() for each in found]


def read_changes(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """The changes of the suites in a run directory: rlt_api.spec.suite_changes."""
    files = islice(sorted((path / FOLDER).glob(f"*/{CHANGES}")), MAX_SUITES)
    texts = (_read(file, notes) for file in files)
    return parse_changes((text for text in texts if text is not None), notes)


def parse_changes(lines: Iterable[bytes | str], notes: list[str]) -> list[dict[str, Any]]:
    """The changes of each suite, from one line for each."""
    found = []
    for line in islice(lines, MAX_SUITES):
        try:
            found.append(SuiteChanges.model_validate_json(line, extra="ignore").to_json())
        except ValidationError:
            notes.append("The changed samples of a suite cannot be read.")
    return found


def read_scores(path: Path, notes: list[str]) -> dict[str, SuiteScores]:
    """The scores by prompt of each suite's newest evaluation in a run directory."""
    found = {}
    for file in islice(sorted((path / FOLDER).glob(f"*/{SCORES}")), MAX_SUITES):
        text = _read(file, notes, MAX_SCORES_BYTES)
        try:
            if text is not None and file.parent.name.isprintable():
                found[file.parent.name] = SuiteScores.model_validate_json(text, extra="ignore")
        except ValidationError:
            notes.append("The scores of a suite cannot be read.")
    return found


def _read(file: Path, notes: list[str], size: int = MAX_BYTES) -> bytes | None:
    """The content of a file. None if it is missing or cannot be read."""
    try:
        with file.open("rb") as opened:
            content = opened.read(size + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"{file.name} cannot be read: {error.strerror}.")
        return None
    if len(content) > size:
        notes.append(f"{file.name} has more than {size >> 20} MiB, and is not read.")
        return None
    return content
