"""The stage training of verl, OpenRLHF and other programs: one step, its checkpoint, and a second start from it."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from rlt_pod.command.foreign_lines import parse_foreign_line
from rlt_pod.preflight.result import Result, failed, format_gib, passed
from rlt_pod.preflight.trial.child import Ended, run_child
from rlt_pod.preflight.trial.engine import find_error
from rlt_pod.report.step_line import parse_step_line

if TYPE_CHECKING:
    from rlt_pod.preflight.expected import Trial

TIMEOUT_S = 3600.0
"""Time for each of both starts."""
KEPT_LINES = 400
SHOWN_LINES = 3
DIRECTORY_VARIABLE = "RLT_PREFLIGHT_DIRECTORY"
"""Variable with the folder for the files of the step."""
REMEDY = "Correct the cause, which would also end the training. The log of the preflight has the whole output."


def run_framework_trial(trial: Trial, timeout_s: float = TIMEOUT_S) -> list[Result]:
    """Run the step and the second start. The folder is removed before and afterwards."""
    shutil.rmtree(trial.directory, ignore_errors=True)
    try:
        os.makedirs(trial.directory)
        return _run_starts(trial, timeout_s)
    except OSError as error:
        return [failed("training-step", None, f"The program cannot start: {error}.", REMEDY)]
    finally:
        shutil.rmtree(trial.directory, ignore_errors=True)


def _run_starts(trial: Trial, timeout_s: float) -> list[Result]:
    started = time.monotonic()
    ended, step = _start(trial, trial.command, timeout_s)
    seconds = time.monotonic() - started
    problem = _describe_problem(ended, step, 1 if trial.prints_steps else 0, timeout_s)
    if problem:
        return [failed("training-step", None, problem, REMEDY)]
    made = "One step is done" if step == 1 else f"{step} steps are done"
    done = made if trial.prints_steps else "The program of preflight.command exited with 0"
    results = [passed("training-step", f"{seconds:.0f} s", f"{done}, with the start of the program.")]
    saved = measure_folder(trial.directory)
    if trial.resume is None:
        message = "The program saved files in its folder; they were not read back."
        return [*results, passed("checkpoint", format_gib(saved), message)] if saved else results
    if not saved:
        message = "The program saved no checkpoint after the step."
        return [*results, failed("checkpoint", format_gib(0), message, REMEDY)]
    started = time.monotonic()
    ended, last = _start(trial, trial.resume, timeout_s)
    seconds = time.monotonic() - started
    problem = _describe_problem(ended, last, step + 1, timeout_s)
    if problem:
        return [*results, failed("checkpoint", format_gib(saved), f"The next start: {problem}", REMEDY)]
    message = f"The checkpoint was saved; the next start read it and made step {last}, in {seconds:.0f} s."
    return [*results, passed("checkpoint", format_gib(saved), message)]


def _start(trial: Trial, command: list[str], timeout_s: float) -> tuple[Ended, int]:
    """Run the program. Return its end, and the last step in its output; 0 without one."""
    steps = [0]

    def read(line: str) -> None:
        found = parse_step_line(line) or parse_foreign_line(line)
        if found:
            steps.append(found[0])

    ended = run_child(
        command,
        timeout_s,
        lines=KEPT_LINES,
        on_line=read,
        variables={DIRECTORY_VARIABLE: trial.directory},
        working_directory=trial.working_directory,
    )
    return ended, max(steps)


def _describe_problem(ended: Ended, step: int, min_step: int, timeout_s: float) -> str | None:
    """Describe why the step counts as not done. None: it is done."""
    last = " ".join(ended.last_lines[-SHOWN_LINES:])
    if ended.code is None:
        return f"The program did not end within {timeout_s:.0f} s. The last output is: {last}"
    if ended.code != 0:
        return f"The program exited with code {ended.code}: {find_error(ended.last_lines) or last}"
    if step < min_step:
        return f"The program exited with code 0 and printed no line of step {min_step}. The last output is: {last}"
    return None


def measure_folder(folder: str) -> int:
    """Return the bytes of the files in a folder."""
    paths = (os.path.join(parent, file) for parent, _, files in os.walk(folder) for file in files)
    return sum(os.lstat(path).st_size for path in paths)
