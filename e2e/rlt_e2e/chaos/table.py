"""The table of docs/reliability.md, from the results of `make chaos`."""

from __future__ import annotations

import json
from pathlib import Path

from rlt_e2e.chaos.faults import FAULTS
from rlt_e2e.chaos.measure import Outcome
from rlt_e2e.environment import ROOT

RESULTS = ROOT / "out/chaos.json"
PAGE = ROOT / "docs/reliability.md"
MARK = "<!-- chaos: written by make chaos -->\n"
NAMED_WITHIN_S = 15.0


def describe_outcome(outcome: Outcome) -> str:
    """Return the line that `make chaos` prints for a fault."""
    if not outcome.expected:
        named = "nothing to name"
    elif outcome.named_s is None:
        named = "NOT NAMED"
    else:
        named = f"named after {outcome.named_s:.0f} s"
    recovered = "no step after it" if outcome.recovered_s is None else f"next step after {outcome.recovered_s:.0f} s"
    longest = f"longest step {outcome.longest_step_s:.1f} s, median {outcome.median_step_s:.1f} s"
    result = "same result" if outcome.same_result else "OTHER RESULT"
    counted = f"usage {outcome.usage_error:+.1%}{'' if outcome.is_counted else ' NOT COUNTED'}"
    return (
        f"{outcome.fault:12} {outcome.victim}: {named}, {recovered}, {longest}, {outcome.lost_steps} steps repeated, "
        f"{outcome.phase}, {result}, {counted}, {outcome.took_s:.0f} s in all\n             {outcome.text}"
    )


def render(outcomes: dict[str, Outcome], page: str = "") -> str:
    """Return the table, in the order of FAULTS. A fault without an outcome keeps its row of `page`."""
    earlier = {line.split(" | ")[0]: line for line in page.splitlines()}
    lines = [
        "| fault | end of the attempt | named after s | within 15 s | recovered after s | steps lost | final result |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    for fault in FAULTS:
        if fault.name not in outcomes:
            lines.append(earlier.get(f"| {fault.title}", f"| {fault.title} | not run | | | | | |"))
            continue
        each = outcomes[fault.name]
        name = "" if not each.expected else "not named" if each.named_s is None else f"{each.named_s:.0f}"
        within = "nothing to name" if not each.expected else "yes" if (each.named_s or 99) <= NAMED_WITHIN_S else "no"
        recovered = "" if each.recovered_s is None else f"{each.recovered_s:.0f}"
        result = "the same" if each.same_result and each.phase == "Succeeded" else f"**{each.phase}, different**"
        attempts = ", ".join(f"`{reason}`" for reason in each.attempts) or "no end"
        lines.append(f"| {fault.title} | {attempts} | {name} | {within} | {recovered} | {each.lost_steps} | {result} |")
    return "\n".join(lines) + "\n"


def write_page(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Replace the table of the page."""
    head, mark, tail = page.read_text().partition(MARK)
    assert mark, f"{page} has lost the line {MARK!r}"
    table, end, rest = tail.partition(MARK)
    assert end, f"{page} has lost the second line {MARK!r}"
    outcomes = {name: Outcome(**values) for name, values in json.loads(results.read_text()).items()}
    page.write_text(f"{head}{mark}\n{render(outcomes, table)}\n{end}{rest}")
