"""What a run has measured and said so far, read from its directory (run_directory.py) in JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rlt_trainer.telemetry.run_directory import METRICS, ROLLOUTS, rollouts_file

_STEP = re.compile(rb'\{"step": (\d+)[,}]')
_ROLLOUTS = re.compile(r"step-(\d+)\.jsonl")


def metrics_since(run: Path, step: int) -> bytes:
    """The lines of metrics.jsonl after `step`, each step once.

    A resumed run goes back to its checkpoint: a line makes void what stands before it for the same and later steps.
    """
    lines: list[tuple[int, bytes]] = []
    for number, line in _metrics(run / METRICS):
        while lines and lines[-1][0] >= number:
            lines.pop()
        lines.append((number, line))
    return b"".join(line for number, line in lines if number > step)


def rollouts_of(run: Path, step: int) -> bytes | None:
    """The responses of a step, a line each; None if there are none."""
    try:
        return rollouts_file(run, step).read_bytes()
    except FileNotFoundError:
        return None


def latest_rollouts(run: Path) -> int | None:
    """The latest step whose responses are kept."""
    names = (_ROLLOUTS.fullmatch(file.name) for file in (run / ROLLOUTS).glob("step-*.jsonl"))
    return max((int(name[1]) for name in names if name), default=None)


def _metrics(file: Path) -> Iterator[tuple[int, bytes]]:
    if not file.exists():  # before the first step
        return
    with file.open("rb") as lines:
        for line in lines:
            start = _STEP.match(line)
            if start and line.endswith(b"\n"):  # else it is still being written, or was torn by a crash
                yield int(start[1]), line
