"""Conversion of spans.jsonl to a Chrome trace for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlt_trainer.telemetry.run_directory import SPANS
from rlt_trainer.telemetry.spans import Span


def main(arguments: Sequence[str] | None = None) -> int:
    """`rlt-trainer trace RUN`: write the trace of a run to standard output."""
    parser = argparse.ArgumentParser(prog="rlt-trainer trace", description="A run's spans as a trace for Perfetto.")
    parser.add_argument("run", type=Path, help="the run directory")
    file = parser.parse_args(arguments).run / SPANS
    if not file.exists():
        raise ValueError(f"{file}: no such file. Pass the directory of a run that has completed a step.")
    json.dump(build_trace(read_spans(file)), sys.stdout)
    return 0


def read_spans(file: Path) -> Iterator[Span]:
    """Yield the spans in `file`. Lines that a crash left incomplete are skipped."""
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield Span(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue


def build_trace(spans: Iterable[Span]) -> dict[str, Any]:
    """Build a trace with a process for each rank. Times are in microseconds (Chrome's Trace Event Format, phase X)."""
    spans = list(spans)
    ranks = {span.rank: span.process for span in spans}
    names = [{"ph": "M", "name": "process_name", "pid": rank, "args": {"name": ranks[rank]}} for rank in sorted(ranks)]
    events = [
        {
            "ph": "X",
            "name": span.phase,
            "pid": span.rank,
            "tid": span.thread,
            "ts": span.start * 1e6,
            "dur": (span.end - span.start) * 1e6,
            "args": {"step": span.step},
        }
        for span in spans
    ]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}
