"""`python -m trainer_bench`: measure, write out/bench-trainer.json and the table of docs/performance.md.

Each row is measured in its own process, and written at once. With --rows, the other rows of the table stay as they are.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

from bench_report import ROOT, Row, describe_machine, read_table, render_row, write_json, write_table

from trainer_bench import rows
from trainer_bench.rows import ROWS

COMMAND = "bench-trainer"
HEADER = ["| what | target | measured | met | run |", "|---|---|---|---|---|"]


def main() -> None:
    """Measure and write the results."""
    command = argparse.ArgumentParser(prog="trainer_bench", description=__doc__.splitlines()[0])
    command.add_argument("--rows", default="", help=f"rows to measure, default all: {','.join(ROWS)}")
    chosen = [name for name in command.parse_args().rows.split(",") if name]
    names = chosen or list(ROWS)
    if unknown := sorted(set(names) - set(ROWS)):
        raise SystemExit(f"unknown rows: {', '.join(unknown)}. Rows: {', '.join(ROWS)}")
    found = list[Row]()
    lines = list[str]()
    for name in names:
        row, seconds = measure(name)
        found.append(row)
        lines.append(f"{render_row(row)} {datetime.now(UTC):%Y-%m-%d}, {seconds:.0f} s |")
        print(lines[-1], flush=True)
        write_json(found, ROOT / "out/bench-trainer.json")
        write(merge(read_table(COMMAND), lines))  # a later row can fail
    if not chosen:
        write(merge("", lines))


def write(table: str) -> None:
    """Write the table to the page."""
    write_table(COMMAND, f"{describe_machine()}.\n\n{table}")


def measure(name: str) -> tuple[Row, float]:
    """Measure a row in its own process. Return it with the seconds that it took."""
    start = time.perf_counter()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        row = process.submit(rows.measure, name).result()
    return row, time.perf_counter() - start


def merge(text: str, lines: Sequence[str]) -> str:
    """Return the table of `text` with these lines in place of the same rows."""
    old = [line for line in text.splitlines() if line.startswith("|") and line not in HEADER]
    table = {line.split("|")[1]: line for line in [*old, *lines]}
    return "\n".join([*HEADER, *table.values()]) + "\n"


if __name__ == "__main__":
    main()
