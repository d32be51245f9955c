"""The results of a run: one JSON file, written again after each check, and a table in Markdown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpu_check.figures import NOT_RUN, Figure

RESULTS = "results.json"
REPORT = "report.md"
VERDICTS = ("passed", "failed", "cut off", "not run")


@dataclass(frozen=True)
class Result:
    """How one check ended."""

    check: str
    verdict: str
    """One of VERDICTS."""
    reason: str = ""
    """Why it failed, was cut off or was not run."""
    seconds: float = 0.0
    figures: Sequence[Figure] = field(default_factory=tuple)
    log: str = ""
    """The end of the output from a check that did not pass."""


def judge(figures: Sequence[Figure], code: int | None) -> tuple[str, str]:
    """Return verdict and reason of a check from its figures and exit code. None: it was ended at its time budget.

    A check without figures cannot pass.
    """
    if failed := [figure.name for figure in figures if figure.passed is False]:
        return "failed", "; ".join(failed)
    if code is None:
        return "cut off", "its time budget is used up"
    if code == NOT_RUN:
        return "not run", str(figures[-1].value)
    if code:
        return "failed", f"it ended with exit code {code}"
    if not figures:
        return "failed", "it measured nothing"
    return "passed", ""


def write_results(folder: Path, machine: Mapping[str, str], results: Sequence[Result]) -> None:
    """Replace both files. A process that ends meanwhile leaves the earlier ones."""
    document = {"machine": dict(machine), "checks": [asdict(result) for result in results]}
    _replace(folder / RESULTS, json.dumps(document, indent=1) + "\n")
    _replace(folder / REPORT, render_report(machine, results))


def render_report(machine: Mapping[str, str], results: Sequence[Result]) -> str:
    """Render the results as Markdown."""
    lines = [
        "# GPU check",
        "",
        *(f"- {name}: {value}" for name, value in machine.items()),
        "",
        "| check | verdict | figure | value | verdict of the figure | bound or comparison |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        verdict = result.verdict + (f": {result.reason}" if result.reason else "")
        lines.append(f"| **{result.check}** | {_cell(verdict)} | | {result.seconds:.0f} s | | |")
        for figure in result.figures:
            value = f"{figure.value:,.5g}" if isinstance(figure.value, float) else str(figure.value)
            passed = {True: "ok", False: "**failed**", None: ""}[figure.passed]
            cells = (figure.name, f"{value} {figure.unit}".strip(), passed, figure.note)
            lines.append(f"| | | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _replace(file: Path, text: str) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)
