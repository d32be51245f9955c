"""Show a long piece of work as stages: what runs, for how long, how long it may take, and what went wrong.

    with exit_plainly(), stage("build the programs", estimate_s=430) as this:
        this.run(["go", "build", ...], log=Path("build.log"), on_line=lambda line: this.note(line))

A terminal gets a live line, anything else a plain line every ten seconds, and after two minutes every thirty. Stages
do not nest.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.locks import only_one

LIVE_S = 0.5
PLAIN_S, SELDOM_S, PATIENCE_S = 10.0, 30.0, 120.0
TAIL_LINES = 20

finished: dict[str, float] = {}
"""Seconds of every stage that this process finished, by name, in order."""


def cache_folder() -> Path:
    """Builds, images and remembered durations; safe to delete. ``$XDG_CACHE_HOME/rlt``, by default ``~/.cache/rlt``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlt"


class StageError(ValueError):
    """A step failed. `log` is the file that tells why, `advice` the one command (or act) to try next."""

    def __init__(self, message: str, *, log: Path | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.advice = advice


def progress_line(name: str, elapsed_s: float, estimate_s: float | None, note: str) -> str:
    """One line such as ``build  1:05 of about 7:10  (compiled 812 of 3579 packages)``."""
    if estimate_s is None:
        estimate = ""
    elif elapsed_s <= estimate_s:
        estimate = f" of about {minutes(estimate_s)}"
    else:
        estimate = f", longer than the usual {minutes(estimate_s)}"
    return f"{name}  {minutes(elapsed_s)}{estimate}" + (f"  ({note})" if note else "")


def failure_text(error: BaseException) -> str:
    """The message, the last lines of the log that matters and one next command, as plain text."""
    lines = [f"error: {error}"]
    if isinstance(error, StageError):
        if error.log and error.log.exists():
            lines += [f"--- last lines of {error.log}", *tail(error.log), "---"]
        if error.advice:
            lines.append(f"next: {error.advice}")
    return "\n".join(lines)


@contextmanager
def exit_plainly() -> Iterator[None]:
    """Turn a ValueError into its message, log and advice with exit status 1, and Ctrl-C or SIGTERM into status 130."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except ValueError as error:
        print(failure_text(error), file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("\ninterrupted; repeat the command to go on", file=sys.stderr, flush=True)
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


class Stage:
    """What the body of ``with stage(...)`` gets."""

    def __init__(self, name: str, estimate_s: float | None) -> None:
        self.name = name
        self.estimate_s = estimate_s
        self.started = time.monotonic()
        self._note = ""
        self._over = threading.Event()
        self._live = sys.stdout.isatty()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def note(self, text: str) -> None:
        """What is being done or awaited right now; the next progress line shows it."""
        self._note = text

    def run(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        on_line: Callable[[str], None] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        advice: str = "",
    ) -> None:
        """Run `command`, appending its output to `log`; `env` adds to this process's environment.

        Raises StageError where it cannot start or exits non-zero.
        """
        arguments = [str(part) for part in command]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            print("$", *arguments, file=out, flush=True)
            try:
                child = subprocess.Popen(
                    arguments,
                    cwd=cwd,
                    env={**os.environ, **(env or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except FileNotFoundError:
                raise StageError(f"there is no program {arguments[0]!r} on this machine", advice=advice) from None
            try:
                assert child.stdout
                for line in child.stdout:
                    out.write(line)
                    out.flush()
                    if on_line:
                        on_line(line.rstrip())
                status = child.wait()
            except BaseException:
                child.terminate()
                child.wait()
                raise
        if status:
            raise StageError(f"{self.name}: status {status}, see {log}", log=log, advice=advice)

    def _tick(self) -> None:
        while not self._over.wait(self._pause_s()):
            line = progress_line(self.name, self.elapsed_s, self.estimate_s, self._note)
            if self._live:
                width = os.get_terminal_size().columns - 1
                print(f"\r\033[K    {line}"[: width + 8], end="", flush=True)
            else:
                print(f"    {line}", flush=True)

    def _pause_s(self) -> float:
        if self._live:
            return LIVE_S
        return PLAIN_S if self.elapsed_s < PATIENCE_S else SELDOM_S

    def _end(self, mark: str) -> None:
        self._over.set()
        self._ticker.join()
        clear = "\r\033[K" if self._live else ""
        print(f"{clear}{mark}  {self.name}  {self.elapsed_s:.1f} s", flush=True)


@contextmanager
def stage(name: str, *, estimate_s: float | None = None) -> Iterator[Stage]:
    """Print the stage's start, progress and end. The time that it took last on this machine replaces `estimate_s`."""
    print(f"==> {name}", flush=True)
    this = Stage(name, _remembered().get(name, estimate_s))
    try:
        yield this
    except BaseException:
        this._end("FAILED")
        raise
    this._end("ok")
    finished[name] = round(this.elapsed_s, 1)
    remember_duration(name, this.elapsed_s)


def minutes(seconds: float) -> str:
    """Such as ``45 s`` or ``7:10``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if seconds >= 60 else f"{seconds:.0f} s"


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def _durations_file() -> Path:
    return cache_folder() / "durations.json"


def recall_duration(name: str) -> float | None:
    """Seconds that a stage took last on this machine."""
    return _remembered().get(name)


def _remembered() -> dict[str, float]:
    try:
        known = json.loads(_durations_file().read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return {str(name): float(seconds) for name, seconds in known.items()}


def remember_duration(name: str, seconds: float) -> None:
    """Record how long a stage took on this machine."""
    file = _durations_file()
    with only_one(file.with_suffix(".lock")):
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({**_remembered(), name: round(seconds, 1)}, indent=1))
        draft.replace(file)
