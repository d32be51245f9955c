"""Reading of a run's metrics, responses and spans from its directory (run_directory.py), as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rlt_trainer.telemetry.run_directory import METRICS, ROLLOUTS, SPANS, get_rollouts_file

MAX_SPANS_BYTES = 16 * 2**20
"""Size of the end of spans.jsonl that is searched: reading it must not delay the training."""
_STEP = re.compile(rb'\{"step": (\d+)[,}]')
_ROLLOUTS = re.compile(r"step-(\d+)\.jsonl")


def read_metrics(run: Path, *, after: int) -> bytes:
    """Read the lines of metrics.jsonl after the step `after`, each step once.

    A resumed run starts again at its checkpoint: a line replaces all earlier lines of the same and later steps.
    """
    lines: list[tuple[int, bytes]] = []
    for number, line in _iterate_metrics(run / METRICS):
        while lines and lines[-1][0] >= number:
            lines.pop()
        lines.append((number, line))
    return b"".join(line for number, line in lines if number > after)


def has_metrics(run: Path, step: int) -> bool:
    """Whether metrics.jsonl has a complete line of the step."""
    return any(number == step for number, _ in _iterate_metrics(run / METRICS))


def read_rollouts(run: Path, step: int) -> bytes | None:
    """Read the responses of a step, one per line. None if the step has none."""
    try:
        return get_rollouts_file(run, step).read_bytes()
    except FileNotFoundError:
        return None


def find_latest_rollouts(run: Path) -> int | None:
    """Return the latest step with responses. None if there is none."""
    names = (_ROLLOUTS.fullmatch(file.name) for file in (run / ROLLOUTS).glob("step-*.jsonl"))
    return max((int(name[1]) for name in names if name), default=None)


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
                        spans, is_previous = [], False
                    spans.append(line)
    except FileNotFoundError:
        return b""
    return b"".join(spans)


def _iterate_metrics(file: Path) -> Iterator[tuple[int, bytes]]:
    if not file.exists():  # before the first step
        return
    with file.open("rb") as lines:
        for line in lines:
            start = _STEP.match(line)
            if start and line.endswith(b"\n"):  # otherwise the line is being written, or a crash left it incomplete
                yield int(start[1]), line
