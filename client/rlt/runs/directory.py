"""What a run recorded in its directory: the config, the metrics of its steps, and rollouts.

The run may write the files at the same time, have been killed, or be one of another version. What cannot be read is
left out, and named in notes. Memory is bounded: of a large file a part is read, a rollout at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from rlt.errors import UnavailableError
from rlt.runs.rollouts import Rollout
from rlt.runs.suite_results import read_scores
from rlt_api.spec.suite_scores import SuiteScores
from rlt_api.spec.training_config import CONFIG_VERSION
from rlt_pod.report.extremes import select_extremes
from rlt_pod.report.step_history import CONTINUED, METRICS_FILE

CONFIGS = ("config.json", "training.json")
"""The resolved config: of the trainer, and of `rlt run --local` before the trainer has started."""
ROLLOUTS = "rollouts"
MAX_CONFIG_BYTES = 2**20
"""Maximum size of a ConfigMap."""
MAX_METRICS_BYTES = 48 * 2**20
"""About 16,000 steps."""
MAX_ROLLOUTS_BYTES = 64 * 2**20
MAX_LINE_BYTES = 4 * 2**20
MAX_SIDE_REQUESTS = 8
MAX_TEXT_LENGTH = 4000
"""Maximum number of characters of a prompt or response that is kept."""
NUM_EXTREMES = 3
"""Number of the best rollouts, and of the worst, that are kept."""

Step = dict[str, float | None]
"""A line of metrics.jsonl: `step` and the metrics. None is NaN or infinite, which JSON cannot represent."""
_ROLLOUTS_FILE = re.compile(rf"(?:.*/)?{ROLLOUTS}/step-(\d{{1,15}})\.jsonl", re.ASCII)


@dataclass(frozen=True)
class RunRecords:
    """The records of a run."""

    config: Mapping[str, Any]
    """Empty if it cannot be read."""
    steps: list[Step]
    rollouts: list[Rollout]
    """The best and the worst of `rollouts_step`, the best first."""
    rollouts_step: int | None
    notes: tuple[str, ...]
    """What is missing, and why."""
    scores: Mapping[str, SuiteScores] = field(default_factory=dict)
    """Suite -> the scores of its newest evaluation, from a run directory."""


def is_run_directory(path: Path) -> bool:
    """Whether the directory has records of a run."""
    return any((path / name).exists() for name in (*CONFIGS, METRICS_FILE, ROLLOUTS))


def read_run_directory(path: Path) -> RunRecords:
    """Read the records of a run. Raises UnavailableError if the directory has none."""
    if not is_run_directory(path):
        message = f"{path} is not a run directory: it has no {CONFIGS[0]}, {METRICS_FILE} or {ROLLOUTS}."
        raise UnavailableError(message, next=f"ls {path}")
    notes: list[str] = []
    config = read_config(path, notes)
    steps = read_steps(path, notes)
    scores = read_scores(path, notes)
    step = find_latest_rollouts(path)
    lines = iterate_json_lines(path / ROLLOUTS / f"step-{step}.jsonl", MAX_ROLLOUTS_BYTES, notes) if step else ()
    if not step:
        notes.append(f"No {ROLLOUTS} are recorded.")
    return RunRecords(config, steps, select_extremes(map(shorten, lines), NUM_EXTREMES), step, tuple(notes), scores)


def read_steps(path: Path, notes: list[str]) -> list[Step]:
    """The metrics of the steps in their order. Notes get what is missing.

    A resumed run starts again at its checkpoint: a line replaces all earlier lines of the same and later steps.
    """
    parts = [file for file in (path / f"{METRICS_FILE}{CONTINUED}", path / METRICS_FILE) if file.exists()]
    if not parts:
        notes.append(f"{METRICS_FILE} does not exist: no step is complete, or the program does not record metrics.")
        return []
    steps: list[Step] = []
    for line in chain.from_iterable(iterate_json_lines(file, MAX_METRICS_BYTES, notes) for file in parts):
        number = line.get("step")
        if not isinstance(number, int):
            continue
        while steps and (steps[-1]["step"] or 0) >= number:
            steps.pop()
        steps.append({name: value for name, value in line.items() if value is None or _is_number(value)})
    return steps


def read_rollouts(path: Path, step: int | None) -> tuple[list[Rollout], list[str]]:
    """The rollouts of a step, by default of the latest, and notes. Raises UnavailableError without rollouts."""
    notes: list[str] = []
    file = path / ROLLOUTS / f"step-{choose_rollouts_step(str(path), list_rollout_steps(path), step)}.jsonl"
    return list(map(shorten, iterate_json_lines(file, MAX_ROLLOUTS_BYTES, notes))), notes


def choose_rollouts_step(run: str, steps: list[int], step: int | None) -> int:
    """The step, by default the latest of `steps`, which are in their order. Raises UnavailableError without rollouts.

    `run`: where the run is, for the message.
    """
    if not steps or step not in (None, *steps):
        known = f"its steps with responses are {_summarize_steps(steps)}" if steps else f"it has no {ROLLOUTS}"
        raise UnavailableError(f"{run}: {known}.", next=f"rlt report {run}")
    return steps[-1] if step is None else step


def _summarize_steps(steps: list[int]) -> str:
    return ", ".join(map(str, steps)) if len(steps) < 4 else f"{steps[0]}, {steps[1]} … {steps[-1]}"


def find_latest_rollouts(path: Path) -> int | None:
    """The latest step with a file of rollouts. None if there is none."""
    return max(list_rollout_steps(path), default=None)


def list_rollout_steps(path: Path) -> list[int]:
    """The steps with a file of rollouts, in their order."""
    steps = (get_rollouts_step(f"{ROLLOUTS}/{file.name}") for file in (path / ROLLOUTS).glob("step-*.jsonl"))
    return sorted(step for step in steps if step is not None)


def get_rollouts_step(name: str) -> int | None:
    """The step of a file rollouts/step-N.jsonl, also with folders before it. None for another file."""
    found = _ROLLOUTS_FILE.fullmatch(name)
    return int(found[1]) if found else None


def shorten(rollout: Rollout) -> Rollout:
    """The rollout with the ends of long texts left out, and without its segments and tokens.

    "side_requests": the first side requests among the segments, if there are any.
    """
    side = [_shorten_text(str(each.get("text", ""))) for each in _list_side_requests(rollout.get("segments"))]
    kept = {key: _shorten_text(value) for key, value in rollout.items() if key not in ("segments", "by_token")}
    return {**kept, **({"side_requests": side} if side else {})}


def _list_side_requests(segments: object) -> list[Mapping[str, Any]]:
    given = segments[:MAX_SIDE_REQUESTS] if isinstance(segments, list) else []  # they are before the sequences
    return [each for each in given if isinstance(each, Mapping) and each.get("side") is True]


def iterate_json_lines(file: Path, size: int, notes: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects in the last `size` bytes of a file, one at a time. Notes get the number of lines left out."""
    invalid = 0
    try:
        with file.open("rb") as opened:
            total = opened.seek(0, 2)
            opened.seek(max(0, total - size))
            if total > size:
                notes.append(f"{file.name} has {total >> 20} MiB: only its last {size >> 20} MiB are read.")
                _skip_line(opened)
            while line := opened.readline(MAX_LINE_BYTES):
                complete = line.endswith(b"\n")
                if not complete and len(line) < MAX_LINE_BYTES:
                    notes.append(f"The last line of {file.name} is incomplete: it is being written, or the run ended.")
                    break
                if not complete:  # the line is too long
                    _skip_line(opened)
                    line = b""
                parsed = _parse_object(line)
                if parsed is None:
                    invalid += 1
                else:
                    yield parsed
    except OSError as error:
        notes.append(f"{file.name} cannot be read: {error.strerror}.")
    if invalid:
        notes.append(f"{file.name} has {invalid} {'lines' if invalid > 1 else 'line'} that cannot be parsed.")


def _skip_line(file: BinaryIO) -> None:
    """Read the rest of a line, whose size is not limited."""
    while (part := file.readline(MAX_LINE_BYTES)) and not part.endswith(b"\n"):
        pass


def read_config(path: Path, notes: list[str]) -> Mapping[str, Any]:
    """The resolved config with its secrets. Empty if it cannot be read: notes get the reason."""
    file = next((path / name for name in CONFIGS if (path / name).exists()), None)
    if file is None:
        notes.append(f"{CONFIGS[0]} does not exist.")
        return {}
    try:
        with file.open("rb") as opened:
            config = _parse_object(opened.read(MAX_CONFIG_BYTES))
    except OSError as error:
        notes.append(f"{file.name} cannot be read: {error.strerror}.")
        return {}
    if config is None:
        notes.append(f"{file.name} is not a JSON object.")
        return {}
    version = config.get("version", CONFIG_VERSION)
    if version != CONFIG_VERSION:
        notes.append(f"{file.name} has version {version}, and this rlt knows {CONFIG_VERSION}: fields can differ.")
    return config


def _parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shorten_text(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= MAX_TEXT_LENGTH:
        return value
    return f"{value[:MAX_TEXT_LENGTH]}… ({len(value) - MAX_TEXT_LENGTH} more characters)"
