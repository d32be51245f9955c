"""Write the tables of docs/testing.md from the timings of the suites' last runs: `python tools/timings.py`.

`make test` and `make test-long` leave a line for each test in out/timings/PART.jsonl (see e2e/rlt_e2e/timings.py), and
what each part took in out/timings/parts.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TIMINGS = ROOT / "out/timings"
PAGE = ROOT / "docs/testing.md"
MARK = "<!-- timings: written by tools/timings.py -->\n"


def read_tests(parts: Collection[str]) -> list[dict[str, Any]]:
    """Every measured test of these parts, with its part. Raises ValueError if no run has left any."""
    found = [
        {**json.loads(line), "part": file.stem}
        for file in sorted(TIMINGS.glob("*.jsonl"))
        if file.stem in parts
        for line in file.read_text().splitlines()
    ]
    if not found:
        raise ValueError(f"there are no timings in {TIMINGS}: run `make test` and `make test-long` first")
    return found


def render(parts: dict[str, float], tests: list[dict[str, Any]]) -> str:
    """The tables: the parts, then every test file. A file with tests of two parts has a row in each."""
    lines = ["| part | tests | wall-clock s | CPU s of the tests | waiting s |", "|---|---:|---:|---:|---:|"]
    for name, seconds in parts.items():
        own = [test for test in tests if test["part"] == name]
        count, _, cpu, waiting = sum_up(own)
        measured = f"{count} | {seconds:.0f} | {cpu:.0f} | {waiting:.0f}" if own else f"| {seconds:.0f} | |"
        lines.append(f"| {name} | {measured} |")
    lines += [
        "",
        "Every test file, those with the most CPU time first:",
        "",
        "| file | part | tests | s | CPU s | waiting s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    files: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for test in tests:
        files.setdefault((test["test"].partition("::")[0], test["part"]), []).append(test)
    rows = {place: sum_up(own) for place, own in files.items()}
    for (file, part), (count, seconds, cpu, waiting) in sorted(rows.items(), key=lambda row: (-row[1][2], row[0])):
        lines.append(f"| `{file}` | {part} | {count} | {seconds:.0f} | {cpu:.0f} | {waiting:.0f} |")
    return "\n".join(lines) + "\n"


def sum_up(tests: list[dict[str, Any]]) -> tuple[int, float, float, float]:
    """Return the number of tests, and their wall-clock, CPU and waiting seconds."""
    seconds = sum(float(test["seconds"]) for test in tests)
    cpu = sum(float(test["cpu"]) for test in tests)
    return len(tests), seconds, cpu, sum(map(waiting_seconds, tests))


def waiting_seconds(test: dict[str, Any]) -> float:
    """The part of a test's duration in which fewer than one core was busy for it."""
    return max(0.0, float(test["seconds"]) - float(test["cpu"]))


def main() -> None:
    head, mark, _ = PAGE.read_text().partition(MARK)
    assert mark, f"{PAGE} has lost the line {MARK!r}"
    record = TIMINGS / "parts.json"
    parts: dict[str, float] = json.loads(record.read_text()) if record.exists() else {}
    parts.pop("files", None)  # of FILES=...
    PAGE.write_text(head + mark + "\n" + render(parts, read_tests(parts)))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(str(error))
