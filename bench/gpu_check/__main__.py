"""`python -m gpu_check`: run the checks, one process each, and write out/gpu-check/results.json after each of them.

Exit code 0: every check that ran passed. 1: one did not. 2: machine or arguments do not fit, and nothing is written.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpu_check.figures import read_figures
from gpu_check.machine import describe_machine, find_problems
from gpu_check.plan import CHECKS, Check, explain_skip, select_checks
from gpu_check.results import REPORT, RESULTS, Result, judge, write_results

ROOT = Path(__file__).resolve().parents[2]
LOG_LINES = 40
"""Lines of a check's output that are kept in the results."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the checks. Return the exit code."""
    arguments = parse_arguments(words)
    try:
        checks = select_checks([name for name in arguments.checks.split(",") if name])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if problems := list(find_problems(rehearse=arguments.rehearse)):
        print("\n".join(problems), file=sys.stderr)
        return 2
    folder: Path = arguments.output
    remove_results(folder)
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine() | {
        "commit": arguments.commit or "unknown",
        "rehearsal": "yes: CPUs and small shapes; no figure is one of a GPU" if arguments.rehearse else "no",
    }
    print("\n".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    results: list[Result] = []
    end = time.monotonic() + arguments.budget
    for check in checks:
        print(f"\n{check.name}: {check.question}", flush=True)
        results.append(run_check(check, folder, rehearse=arguments.rehearse, seconds_left=end - time.monotonic()))
        print(f"{check.name}: {results[-1].verdict} {results[-1].reason}".rstrip(), flush=True)
        write_results(folder, machine, results)
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in ("passed", "failed")}
    others = [
        f"{result.check} ({result.verdict}: {result.reason})" for result in results if result.verdict not in counts
    ]
    print(f"\n{counts['passed']} passed, {counts['failed']} failed" + (f"; {'; '.join(others)}" if others else ""))
    print(f"Results: {folder / RESULTS}, as a table: {folder / REPORT}")
    ran = [result for result in results if result.verdict != "not run"]
    return 0 if ran and all(result.verdict == "passed" for result in ran) else 1


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checks", default="", help=f"default all: {','.join(check.name for check in CHECKS)}")
    parser.add_argument("--budget", type=float, default=900, help="seconds for all checks together, default 900")
    parser.add_argument("--rehearse", action="store_true", help="run the same code on CPUs with small shapes")
    parser.add_argument("--output", type=Path, default=ROOT / "out/gpu-check", help="folder of the results")
    parser.add_argument("--commit", help="the commit of the sources, for the results")
    return parser.parse_args(words)


def remove_results(folder: Path) -> None:
    """Remove the files of an earlier run. The user may have named a folder with other files."""
    for name in (RESULTS, REPORT, *(f"{check.name}.{kind}" for check in CHECKS for kind in ("figures", "log"))):
        (folder / name).unlink(missing_ok=True)


def run_check(check: Check, folder: Path, *, rehearse: bool, seconds_left: float) -> Result:
    """Run one check in a process group, which ends with the check's time budget or the whole one."""
    if reason := explain_skip(check, rehearse=rehearse, seconds_left=seconds_left):
        return Result(check.name, "not run", reason)
    figures = folder / f"{check.name}.figures"
    log = folder / f"{check.name}.log"
    command = [sys.executable, "-m", "gpu_check.one", check.name, "--figures", str(figures)]
    command += ["--rehearse"] if rehearse else []
    allowed = seconds_left if rehearse else min(check.seconds, seconds_left)  # CPUs are slower than the budgets
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(allowed)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(process)
    found = read_figures(figures)
    for figure in found:
        print(f"  {figure}", flush=True)
    verdict, reason = judge(found, code)
    lines = [] if verdict in ("passed", "not run") else log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    for line in lines:
        print(f"  | {line}", flush=True)
    return Result(check.name, verdict, reason, round(time.monotonic() - start, 1), found, "\n".join(lines))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started. vLLM's processes hold the device's memory."""
    with suppress(ProcessLookupError):  # it has ended, and has left no process
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
