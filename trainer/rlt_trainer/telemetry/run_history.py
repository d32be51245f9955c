"""Reading of a run's metrics, responses, spans and suites from its directory (run_directory.py), as JSON lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rlt_pod.report.step_history import METRICS_FILE, iterate_steps
from rlt_trainer.telemetry.run_directory import CHANGES, EVALUATIONS, ROLLOUTS, SPANS, get_rollouts_file

MAX_ROLLOUTS_BYTES = 64 * 2**20
"""Maximum size of a step's responses that are served: they are in memory at once. The run page reads as many."""
MAX_SPANS_BYTES = 16 * 2**20
"""Size of spans.jsonl's end that is searched: reading it must not delay the training."""
_ROLLOUTS = re.compile(r"step-(\d+)\.jsonl")


def has_metrics(run: Path, step: int) -> bool:
    """Whether metrics.jsonl has a complete line of the step."""
    return any(number == step for number, _ in iterate_steps(run / METRICS_FILE))


def read_metrics(run: Path, step: int) -> dict[str, float]:
    """Read the finite metrics of a step. Empty if metrics.jsonl has no complete line of it."""
    lines = [line for number, line in iterate_steps(run / METRICS_FILE) if number == step]
    found = json.loads(lines[-1]) if lines else {}
    return {name: value for name, value in found.items() if value is not None}


def read_rollouts(run: Path, step: int) -> bytes | None:
    """Read the responses of a step, one per line. None if it has none. Raises ValueError if there are too many."""
    file = get_rollouts_file(run, step)
    try:
        size = file.stat().st_size
        if size > MAX_ROLLOUTS_BYTES:
            limit = f"more than the {MAX_ROLLOUTS_BYTES >> 20} MiB that are served"
            raise ValueError(f"{file} has {size >> 20} MiB, {limit}: read the file")
        return file.read_bytes()
    except FileNotFoundError:
        return None


def find_latest_rollouts(run: Path) -> int | None:
    """Return the latest step with responses. None if there is none."""
    names = (_ROLLOUTS.fullmatch(file.name) for file in (run / ROLLOUTS).glob("step-*.jsonl"))
    return max((int(name[1]) for name in names if name), default=None)


def read_changes(run: Path) -> bytes:
    """Read the changes of the suites, one suite per line: rlt_api.spec.suite_changes."""
    return b"".join(file.read_bytes() for file in sorted((run / EVALUATIONS).glob(f"*/{CHANGES}")))


def read_spans(run: Path, step: int) -> bytes:
    """Read the spans of a step, one per line. A resumed run repeats steps: the last time counts."""
    mark = re.compile(rb'"step": %d[,}]' % step)
    spans: list[bytes] = []
    is_previous = False
    try:
        with (run / SPANS).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - MAX_SPANS_BYTES))
            for line in file:
                if not mark.search(line):
                    is_previous = True
                elif line.startswith(b"{") and line.endswith(b"}\n"):  # otherwise a part of a line
                    if is_previous:
                        spans = []
                        is_previous = False
                    spans.append(line)
    except FileNotFoundError:
        return b""
    return b"".join(spans)
