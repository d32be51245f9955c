"""The stage training: one step of the job's own configuration, as a program of the framework in the same image."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_pod.preflight.result import Result, failed, format_gib, passed, warned
from rlt_pod.preflight.trial.child import run_child
from rlt_pod.report.driver_report import TRAINER_ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 3600.0
"""Time for the whole program: two starts of the engines, and one step."""
MAX_MEMORY_SHARE = 0.95
"""Above this share of the memory, a longer response or another batch may not fit."""
MAX_TEXT_CHARACTERS = 80
LAST_LINES = 3


def run_trial(command: Sequence[str], memory: int | None = None, timeout_s: float = TIMEOUT_S) -> list[Result]:
    """Run the program and return the results of the stage. Its output is copied.

    `memory`: bytes of the smallest accelerator. None: there is none.
    """
    with tempfile.TemporaryDirectory(prefix="rlt-preflight-") as folder:
        report = Path(folder, "report.json")
        ended = run_child([*command, "--report", str(report)], timeout_s, lines=LAST_LINES)
        if ended.code != 0 or not report.exists():
            return [_describe_failure(ended.code, ended.last_lines, timeout_s)]
        return check_report(json.loads(report.read_text()), memory)


def check_report(report: dict[str, Any], memory: int | None) -> list[Result]:
    """Check the report of rlt_trainer/driver/trial.py."""
    text = report.get("text")  # None: the job generates no responses (algorithm.dpo)
    first = "" if text is None else f" The first response is {text[:MAX_TEXT_CHARACTERS]!r}."
    results = [passed("training-step", f"{report['seconds']:.1f} s", f"One step is done.{first}")]
    peak = report.get("peakMemory")
    if peak and memory:
        value = format_gib(peak)
        limit = format_gib(memory)
        if peak > MAX_MEMORY_SHARE * memory:
            message = "The step uses nearly all memory: a step with longer responses may not fit."
            remedy = "Reduce training.ppoMicroBatchSizePerDevice or ppoMaxTokenLenPerDevice, or use more accelerators."
            results.append(warned("peak-memory", value, message, remedy, threshold=limit))
        else:
            results.append(passed("peak-memory", value, "The step fits into the memory.", threshold=limit))
    saved = report["checkpointBytes"]
    message = f"The checkpoint was saved; the next start read it back in {report['resumeSeconds']:.0f} s."
    results.append(passed("checkpoint", format_gib(saved), message))
    return results


def _describe_failure(code: int | None, lines: Sequence[str], timeout_s: float) -> Result:
    if code is None:
        message = f"The step did not end within {timeout_s:.0f} s. The last output is: {' '.join(lines)}"
    else:
        errors = [line[len(TRAINER_ERROR) :].strip() for line in lines if line.startswith(TRAINER_ERROR)]
        message = errors[-1] if errors else f"The program exited with code {code}: {' '.join(lines)}"
    remedy = "Correct the cause, which would also end the training. The log of the preflight has the whole output."
    return failed("training-step", None, message, remedy)
