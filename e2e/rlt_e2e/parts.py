"""Run the parts of a test suite side by side; the first failure stops the others, unless the suite continues.

A part is a function that runs commands. Each part writes its output to its own log. This module shows one progress
line for all parts, prints the end of a failed part's log, and ends every process that a part started.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rlt_e2e.cluster.stages import format_duration, read_duration, read_tail, record_duration

PROGRESS_INTERVAL_S = 30.0
"""Between progress lines."""
INTERRUPT_TIMEOUT_S = 60.0
"""Between SIGINT and SIGKILL: fixtures of tests remove what they made."""
TAIL_LINES = 60


class PartFailedError(Exception):
    """A command of a part failed. `advice` is the command that repairs it, or empty."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class StoppedError(Exception):
    """Another part failed, or the user pressed Ctrl-C."""


@dataclass
class Run:
    """What the function of a part works with."""

    name: str
    log: Path
    stopping: threading.Event
    tests: int = 0
    """Tests that ended so far."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """passed, failed, skipped -> tests, from pytest's last line."""
    note: str = ""
    """What the progress line shows."""
    child: subprocess.Popen[str] | None = None
    starting: threading.Lock = field(default_factory=threading.Lock)
    """Held from the check of `stopping` until `child` is set, so that `interrupt` misses no command that starts."""

    def command(
        self,
        arguments: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        advice: str = "",
        cwd: Path | None = None,
        even_if_stopping: bool = False,
    ) -> None:
        """Run a command in its own process group and append its output to the log.

        Raises PartFailedError if it exits with another status than 0, StoppedError if the run is being stopped.
        """
        words = [str(word) for word in arguments]
        with self.log.open("a") as log:
            with self.starting:
                if self.stopping.is_set() and not even_if_stopping:
                    raise StoppedError
                print("$", *words, file=log, flush=True)
                self.child = subprocess.Popen(
                    words,
                    cwd=cwd,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
            assert self.child.stdout
            for line in self.child.stdout:
                log.write(line)
                log.flush()
                if on_line:
                    on_line(line.rstrip())
            status = self.child.wait()
        if self.stopping.is_set() and not even_if_stopping:
            raise StoppedError
        if status:
            raise PartFailedError(f"{Path(words[0]).name} exited with status {status}", advice)

    def interrupt(self) -> None:
        """Send SIGINT to the command that runs, and SIGKILL if it does not end in time. Set `stopping` before."""
        with self.starting:
            child = self.child
        if child is None or child.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGINT)
            try:
                child.wait(INTERRUPT_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Part:
    """A part of the suite."""

    name: str
    title: str
    run: Callable[[Run], None]
    target: str = "test"
    """The target of the Makefile that repeats the part."""


@dataclass(frozen=True)
class Finished:
    """How a part ended."""

    part: Part
    seconds: float
    run: Run
    passed: bool


def run_phases(
    phases: Sequence[Sequence[Sequence[Part]]],
    logs: Path,
    *,
    continues: bool = False,
    on_end: Callable[[Finished], None] = lambda finished: None,
) -> list[Finished]:
    """Run the phases one after another. Within a phase the lanes run side by side, each its parts in order.

    A failure stops all parts and raises SystemExit with status 1, or, if the suite `continues`, is part of the result.
    Ctrl-C and SIGTERM raise SystemExit with status 130. Both once every process has ended. The thread of a lane calls
    `on_end` for each part that passed or failed.
    """
    logs.mkdir(parents=True, exist_ok=True)
    suite = _Suite(logs, continues, on_end)
    # Both, explicitly: a shell starts background jobs with SIGINT ignored, and children inherit that.
    previous = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for lanes in phases:
            suite.run_lanes([lane for lane in lanes if lane])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return suite.finished


class _Suite:
    def __init__(self, logs: Path, continues: bool, on_end: Callable[[Finished], None]) -> None:
        self.logs = logs
        self.continues = continues
        self.on_end = on_end
        self.started = time.monotonic()
        self.finished: list[Finished] = []
        self.active: dict[str, tuple[Run, float]] = {}
        self.stopping = threading.Event()
        self.failed = threading.Event()
        self.lock = threading.Lock()
        self.ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item for each lane that has ended."""

    def run_lanes(self, lanes: Sequence[Sequence[Part]]) -> None:
        threads = [threading.Thread(target=self._run_lane, args=(lane,)) for lane in lanes]
        for thread in threads:
            thread.start()
        try:
            self._await_lanes(len(lanes))
        except KeyboardInterrupt:
            print("\ninterrupted; stopping all parts", file=sys.stderr, flush=True)
            self._stop()
            for thread in threads:
                thread.join()
            raise SystemExit(130) from None
        if self.failed.is_set() and not self.continues:
            raise SystemExit(1)

    def _run_lane(self, lane: Sequence[Part]) -> None:
        try:
            self._run_parts(lane)
        finally:
            self.ended.put(None)

    def _run_parts(self, lane: Sequence[Part]) -> None:
        for part in lane:
            if self.stopping.is_set():
                return
            log = self.logs / f"{part.name}.log"
            log.unlink(missing_ok=True)
            run = Run(part.name, log, self.stopping)
            started = time.monotonic()
            with self.lock:
                self.active[part.name] = (run, started)
            print(f"==> {part.title}", flush=True)
            passed = False
            try:
                part.run(run)
                passed = True
            except StoppedError:
                print(f"stopped  {part.title}", flush=True)
                return
            except Exception as error:
                self._report_failure(part, run, error, time.monotonic() - started)
            finally:
                with self.lock:
                    del self.active[part.name]
            finished = Finished(part, time.monotonic() - started, run, passed)
            self.finished.append(finished)
            self.on_end(finished)
            if passed:
                record_duration(f"part {part.name}", finished.seconds)
                count = f"{run.tests} tests, " if run.tests else ""
                print(f"ok  {part.title}  {count}{format_duration(finished.seconds)}", flush=True)
            elif not self.continues:
                return

    def _report_failure(self, part: Part, run: Run, error: Exception, seconds: float) -> None:
        lines = [f"FAILED  {part.title}  {format_duration(seconds)}: {error}", f"--- last lines of {run.log}"]
        lines += read_tail(run.log, TAIL_LINES) if run.log.exists() else []
        advice = error.advice if isinstance(error, PartFailedError) else ""
        advice = advice or f"make {part.target} ONLY={part.name}"
        print("\n".join([*lines, "---", f"next: {advice}"]), file=sys.stderr, flush=True)
        self.failed.set()
        if not self.continues:
            self._stop(but=part.name)

    def _stop(self, *, but: str = "") -> None:
        self.stopping.set()
        with self.lock:
            others = [run for name, (run, _) in self.active.items() if name != but]
        threads = [threading.Thread(target=run.interrupt) for run in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _await_lanes(self, count: int) -> None:
        while count:
            try:
                self.ended.get(timeout=PROGRESS_INTERVAL_S)
                count -= 1
            except queue.Empty:
                with self.lock:
                    active = [self._progress(run, started) for run, started in self.active.values()]
                print(f"    {format_duration(time.monotonic() - self.started)}  {' | '.join(active)}", flush=True)

    def _progress(self, run: Run, started: float) -> str:
        elapsed = time.monotonic() - started
        usual = read_duration(f"part {run.name}")
        words = [
            run.name,
            format_duration(elapsed) + (f" of about {format_duration(usual)}" if usual and elapsed <= usual else ""),
        ]
        return " ".join([*words, f"({run.note})"] if run.note else words)
