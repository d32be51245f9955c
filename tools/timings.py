"""Write the tables of docs/testing.md from the timings of the last `make test`: `python tools/timings.py`.

`make test` leaves a line for each test in out/timings/PART.jsonl (see e2e/timings.py), and what each part took in
out/timings/parts.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TIMINGS = ROOT / "out/timings"
PAGE = ROOT / "docs/testing.md"
MARK = "<!-- timings: written by tools/timings.py -->\n"
SLOWEST = 20


def read_tests() -> list[dict[str, Any]]:
    """Every measured test with its part. Raises ValueError if no run has left any."""
    found = [
        {**json.loads(line), "part": file.stem}
        for file in sorted(TIMINGS.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    if not found:
        raise ValueError(f"there are no timings in {TIMINGS}: run `make test` first")
    return found


def render(parts: dict[str, float], tests: list[dict[str, Any]]) -> str:
    """The tables: the parts, then the slowest tests."""
    lines = ["| part | tests | wall-clock s | CPU s of the tests | waiting s |", "|---|---:|---:|---:|---:|"]
    for name, seconds in parts.items():
        own = [test for test in tests if test["part"] == name]
        cpu, waiting = sum(test["cpu"] for test in own), sum(map(waiting_seconds, own))
        measured = f"{len(own)} | {seconds:.0f} | {cpu:.0f} | {waiting:.0f}" if own else f"| {seconds:.0f} | |"
        lines.append(f"| {name} | {measured} |")
    lines += [
        "",
        f"The {SLOWEST} slowest tests:",
        "",
        "| test | part | s | CPU s | waiting s |",
        "|---|---|---:|---:|---:|",
    ]
    for test in sorted(tests, key=lambda test: -float(test["seconds"]))[:SLOWEST]:
        name = test["test"].rpartition("::")[2]
        numbers = f"{test['seconds']:.0f} | {test['cpu']:.0f} | {waiting_seconds(test):.0f}"
        lines.append(f"| `{name}` | {test['part']} | {numbers} |")
    return "\n".join(lines) + "\n"


def waiting_seconds(test: dict[str, Any]) -> float:
    """The part of a test's duration in which fewer than one core was busy for it."""
    return max(0.0, float(test["seconds"]) - float(test["cpu"]))


def main() -> None:
    head, mark, _ = PAGE.read_text().partition(MARK)
    assert mark, f"{PAGE} has lost the line {MARK!r}"
    PAGE.write_text(head + mark + "\n" + render(json.loads((TIMINGS / "parts.json").read_text()), read_tests()))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(str(error))
