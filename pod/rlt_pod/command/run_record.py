"""The record of a run that outlives its pods: the latest metrics, the best and worst responses, the spans of one step.

The program of the head writes it beside the output of the Ray job when the training has ended, also after a failure.
Ray's API then serves it to the operator, which stores it in a ConfigMap of the job before it releases the cluster.
It needs only Python 3.8 and its standard library, because it is mounted into images that rlt does not build.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlt_pod.command import verl_rollouts
from rlt_pod.keep_logs import list_secrets, mask
from rlt_pod.report.extremes import select_extremes
from rlt_pod.report.step_history import METRICS_FILE, read_history

RECORD_VERSION = 1
"""Version of the format."""
MAX_RECORD_BYTES = 100_000
"""Maximum size of a record, compressed."""
MAX_STEPS = 400
"""Maximum number of steps in a record, the latest ones. A record that is too large has fewer, in even distances."""
LAST_STEPS = 10
"""Number of latest steps that are not thinned out: the reward of a run is their mean."""
DIGITS = 5
"""Significant digits of a metric."""
NUM_EXTREMES = 3
"""Number of the best responses, and of the worst."""
MAX_TEXT_LENGTH = 2000
"""Maximum number of characters of a prompt or response."""
MAX_SPANS = 400
"""Maximum number of spans."""
MAX_SPANS_BYTES = 2**20
"""Size of the part that is read, the end of the spans' file."""
MAX_ROLLOUTS_BYTES = 64 * 2**20
"""Maximum size of the rollouts' file that is read."""
DISTANCES = tuple(2**power for power in range(10))
"""Distances of the steps in a record, from all steps to one of 512."""
TIMEOUT_S = 10.0
"""Time to read the run directory, which may be on a shared storage, and to write the record."""
SPAN_KEYS = ("rank", "engine", "phase", "thread", "start", "end")
LEFT_OUT = ("segments", "by_token", "images")
"""Parts of a rollout that are not recorded: they are large."""
RECORD_SUFFIX = ".record"
"""Suffix of the file, in place of .log of the Ray job's output."""
_OUTPUT = re.compile(r"job-driver-.+\.log")
"""Name of the Ray job's output (ray/dashboard/modules/job/job_log_storage_client.py, Ray 2.60)."""
_ROLLOUTS_FILE = re.compile(r"step-(\d+)\.jsonl")


def keep_record(run: Path, rollouts: Path | None) -> None:
    """Write the record within TIMEOUT_S: a storage that hangs must not delay the end of the job. Raises nothing."""
    thread = threading.Thread(target=_try_to_write, args=(run, rollouts), daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)


def write_record(run: Path, rollouts: Path | None, output: Path) -> None:
    """Write the record of a run beside the output of the Ray job, as base64. Raises OSError.

    rollouts: verl's folder of responses. output: the file of the output. Nothing is written for a run without records,
    or outside of a Ray job.
    """
    record = build_record(run, rollouts) if _OUTPUT.fullmatch(output.name) else None
    if record is None:
        return
    partial = output.with_suffix(".partial")
    partial.write_bytes(base64.b64encode(record) + b"\n")
    partial.replace(output.with_suffix(RECORD_SUFFIX))


def build_record(run: Path, rollouts: Path | None = None) -> bytes | None:
    """Read the record from the run directory, as compressed JSON of at most MAX_RECORD_BYTES. Raises OSError.

    Its fields: version; steps, and metrics with a column of numbers for each name; rolloutsStep and rollouts, the best
    first; spansStep and spans; notes on what is left out. Values of secret variables are masked. None if nothing is
    recorded.
    """
    history = read_history(run / METRICS_FILE, after=0).splitlines()
    steps = list(filter(None, map(_parse, history[-MAX_STEPS:])))
    rollouts_step, extremes = _read_extremes(run, rollouts)
    spans_step, spans = _read_spans(run / "spans.jsonl")
    if not steps and not extremes:
        return None
    notes = [f"Of {len(history)} steps, the last {MAX_STEPS} are kept."] if len(history) > MAX_STEPS else []
    texts = {"rolloutsStep": rollouts_step, "rollouts": extremes, "spansStep": spans_step, "spans": spans}
    tries = [(distance, texts, notes) for distance in DISTANCES[:5]]
    tries += [(distance, {}, [*notes, "Responses and spans are too large to be kept."]) for distance in DISTANCES]
    for distance, kept, reasons in tries:
        thinned = [f"Of the steps before the last {LAST_STEPS}, one of {distance} is kept."] if distance > 1 else []
        packed = _pack({**build_columns(thin_out(steps, distance)), **kept, "notes": [*reasons, *thinned]})
        if len(packed) <= MAX_RECORD_BYTES:
            return packed
    return _pack({**build_columns([]), "notes": ["The metrics are too large to be kept."]})


def thin_out(steps: list[dict[str, Any]], distance: int) -> list[dict[str, Any]]:
    """One of `distance` steps, counted from the end, and all of the last LAST_STEPS."""
    earlier = steps[: max(0, len(steps) - LAST_STEPS)]
    return [*earlier[::-1][distance - 1 :: distance][::-1], *steps[len(earlier) :]]


def build_columns(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """`steps`, and `metrics` by name with a value for each step. None: not recorded, or not a finite number."""
    names = dict.fromkeys(name for step in steps for name in step if name != "step")
    metrics = {name: [_round(step.get(name)) for step in steps] for name in names}
    return {"steps": [step["step"] for step in steps], "metrics": metrics}


def _pack(record: Mapping[str, Any]) -> bytes:
    """Compress the record, with the values of secret variables masked."""
    text = json.dumps({"version": RECORD_VERSION, **record}, separators=(",", ":")).encode()
    secrets = [json.dumps(secret.decode())[1:-1].encode() for secret in list_secrets(os.environ)]
    return zlib.compress(mask(text, secrets))


def _try_to_write(run: Path, rollouts: Path | None) -> None:
    # Without the record, tools read the volume. A message would displace the error of the program at the output's end.
    with contextlib.suppress(Exception):
        write_record(run, rollouts, Path(os.path.realpath("/proc/self/fd/1")))


def _round(value: Any) -> float | None:
    if not isinstance(value, (int, float)):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _read_extremes(run: Path, rollouts: Path | None) -> tuple[int | None, list[dict[str, Any]]]:
    """The latest step with responses, and the best and worst of them."""
    if rollouts:
        step = verl_rollouts.find_latest_step(rollouts)
        try:
            content = None if step is None else verl_rollouts.read_rollouts(rollouts, step)
        except ValueError:  # too large
            content = None
        lines: Iterable[bytes] = (content or b"").splitlines()
    else:
        numbers = (_ROLLOUTS_FILE.fullmatch(file.name) for file in (run / "rollouts").glob("step-*.jsonl"))
        step = max((int(number[1]) for number in numbers if number), default=None)
        lines = () if step is None else _read_lines(run / "rollouts" / f"step-{step}.jsonl", MAX_ROLLOUTS_BYTES)
    found = select_extremes(filter(None, map(_parse, lines)), NUM_EXTREMES)
    return (step, [_shorten(each) for each in found]) if found else (None, [])


def _read_spans(file: Path) -> tuple[int | None, list[dict[str, Any]]]:
    """The latest step with spans, and its spans."""
    lines = [each for each in map(_parse, _read_lines(file, MAX_SPANS_BYTES)) if isinstance(each.get("step"), int)]
    if not lines:
        return None, []
    step = lines[-1]["step"]
    spans = [{key: each[key] for key in SPAN_KEYS if key in each} for each in lines if each["step"] == step]
    return step, spans[:MAX_SPANS]


def _read_lines(file: Path, size: int) -> Iterator[bytes]:
    """The complete lines in the last `size` bytes of a file. None if it does not exist."""
    if not file.exists():
        return
    with file.open("rb") as opened:
        total = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, total - size))
        if total > size:
            opened.readline()
        yield from opened


def _parse(line: bytes) -> dict[str, Any]:
    """The JSON object of a line; empty if the line is incomplete or has none."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shorten(rollout: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _shorten_text(value) for key, value in rollout.items() if key not in LEFT_OUT}


def _shorten_text(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= MAX_TEXT_LENGTH:
        return value
    return f"{value[:MAX_TEXT_LENGTH]}… ({len(value) - MAX_TEXT_LENGTH} more characters)"
