"""Run a job's program outside of Kubernetes: preflight, attempts, a deadline for progress, kept logs and diagnosis.

    python3 rlt_pod.pyz supervise [options] -- ARGUMENTS OF run-command

A Ray job on the head runs it. The folder of an attempt is RUN_DIRECTORY/attempts/N. The exit code is 1 after a failed
check of the preflight, 124 if the last attempt made no progress, and otherwise the exit code of the program.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlt_pod.keep_logs import ATTEMPT_DIRECTORY
from rlt_pod.preflight.table import print_preflight
from rlt_pod.report.step_history import METRICS_FILE
from rlt_pod.supervise.collect_logs import RAY_ADDRESS
from rlt_pod.supervise.watchdog import Deadline, Watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

PROGRAMS = [sys.executable, str(Path(__file__).absolute().parents[2])]
"""The command that runs a program of this archive."""
PROGRAM_LOG = "program.log"
"""File of the program's output, in the folder of the attempt."""
NO_PROGRESS = 124
"""Exit code of an attempt without progress, as of timeout(1)."""
POLL_INTERVAL_S = 5.0
"""Interval between reads of the progress, a file on the shared storage. Short deadlines have a shorter one."""
STACKS_TIMEOUT_S = 120.0
LOGS_TIMEOUT_S = 20.0
"""Time to copy Ray's logs, or to read the program's. After a cancellation Ray may have ended."""
FIRST_DELAY_S = 10.0
MAX_DELAY_S = 300.0
"""Delays between attempts: doubled from the first to the maximum, as spec.failurePolicy.maxRestarts documents."""


class Stop:
    """A request to stop: SIGTERM or SIGINT. The current child gets the signal."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.child: subprocess.Popen[Any] | None = None
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def run(self, command: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        """Start a child, with further variables of the environment."""
        self.child = subprocess.Popen(command, env={**os.environ, **variables})
        if self.requested.is_set():
            self.child.terminate()
        return self.child

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested.set()
        if self.child and self.child.poll() is None:
            self.child.send_signal(number)


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit code."""
    options, program = _parse(arguments)
    stop = Stop()
    if options.preflight:
        code = _check(options, stop)
        if code or options.preflight_only or stop.requested.is_set():
            return code
    code = 0
    earlier = min(_count_failures(options.failures), options.restarts)
    for failures in range(earlier, options.restarts + 1):
        if failures > earlier:
            delay = min(FIRST_DELAY_S * 2 ** (failures - earlier - 1), MAX_DELAY_S)
            _log(f"attempt {failures + 1} of {options.restarts + 1} starts in {delay:.0f} s")
            if stop.requested.wait(delay):
                break
        code = _run_attempt(options, program, stop)
        if code == 0 or stop.requested.is_set():
            break
        _add_failure(options.failures)
    return code


def _count_failures(file: str | None) -> int:
    """The failures of the job before this start: Slurm may have started it again."""
    return len(Path(file).read_text().splitlines()) if file else 0


def _add_failure(file: str | None) -> None:
    if file:
        with open(file, "a") as failures:
            failures.write("program\n")


def _check(options: argparse.Namespace, stop: Stop) -> int:
    """Run the checks, and print their table. Returns their exit code."""
    folder = Path(options.run_directory)
    command = [*PROGRAMS, "preflight", options.preflight]
    return print_preflight(command, folder / "preflight.json", start=lambda process: setattr(stop, "child", process))


def _run_attempt(options: argparse.Namespace, program: list[str], stop: Stop) -> int:
    run_directory = Path(options.run_directory)
    folder = run_directory / "attempts" / str(find_next_attempt(run_directory))
    started = time.monotonic()
    deadline = Deadline(options.progress_deadline, options.first_step_deadline, options.total_steps)
    watchdog = Watchdog(run_directory / METRICS_FILE, deadline, started)
    child = stop.run(
        [*PROGRAMS, "run-command", "--log", f"{folder}/{PROGRAM_LOG}", *program], **{ATTEMPT_DIRECTORY: str(folder)}
    )
    code = _await(child, watchdog, folder, options.grace)
    if RAY_ADDRESS in os.environ:
        _run_helper(["collect-logs", str(folder)], LOGS_TIMEOUT_S)
    if code and not stop.requested.is_set():
        seconds = time.monotonic() - started
        _log(f"the attempt failed with exit code {code} after {seconds:.0f} s; its logs are in {folder}")
        _run_helper(["diagnose", f"{folder}/{PROGRAM_LOG}"], LOGS_TIMEOUT_S)
    return code


def _await(child: subprocess.Popen[bytes], watchdog: Watchdog, folder: Path, grace: float) -> int:
    """Wait for the end of the program. End it if it makes no progress."""
    while True:
        try:
            returned = child.wait(min(POLL_INTERVAL_S, watchdog.interval))
            return returned if returned >= 0 else 128 - returned
        except subprocess.TimeoutExpired:
            limit = watchdog.find_broken_limit(time.monotonic())
        if limit is not None:
            _log(
                f"no progress for {limit:.0f} s (spec.failurePolicy.progressDeadlineSeconds): the stacks of all "
                f"processes are written to {folder}/stacks, and the program is ended"
            )
            if RAY_ADDRESS in os.environ:
                _run_helper(["dump-stacks", f"{folder}/stacks"], STACKS_TIMEOUT_S)
            _end(child, grace)
            return NO_PROGRESS


def _end(child: subprocess.Popen[bytes], grace: float) -> None:
    """End the program. run-command forwards the signal to its process group."""
    child.terminate()
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _run_helper(arguments: list[str], timeout_s: float) -> None:
    """Run another program of the archive. Its failure does not change the result of the job."""
    try:
        subprocess.run([*PROGRAMS, *arguments], timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        _log(f"{arguments[0]} did not end within {timeout_s:.0f} s")


def find_next_attempt(run_directory: Path) -> int:
    """The next number of an attempt, from 1: a job that starts again keeps the earlier logs."""
    folders = (run_directory / "attempts").glob("[0-9]*")
    return 1 + max((int(folder.name) for folder in folders if folder.name.isdecimal()), default=0)


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-directory", required=True, help="folder of the run, on storage that all nodes share")
    parser.add_argument("--preflight", help="file with what the checks expect (default: no checks)")
    parser.add_argument("--preflight-only", action="store_true", help="end after the checks")
    parser.add_argument("--restarts", type=int, default=0, help="maximum number of attempts after the first one")
    parser.add_argument(
        "--failures", help="file with a line for each failure of the job, also of earlier starts (default: none)"
    )
    parser.add_argument(
        "--progress-deadline", type=int, help="seconds without progress; 0: none (default: watchdog.py)"
    )
    parser.add_argument("--first-step-deadline", type=int, help="seconds until the first step (default: none)")
    parser.add_argument("--total-steps", type=int, help="steps of the program, after which it has no deadline")
    parser.add_argument(
        "--grace", type=float, default=30.0, help="seconds for a program that is ended to save its state"
    )
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return parser.parse_args(arguments[:end]), arguments[end + 1 :]


def _log(message: str) -> None:
    print(f"rlt: {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
