"""Show a long task as stages: what runs, its duration, its usual duration, and why it failed.

    with exit_with_message(), stage("build the programs", estimate_s=430) as this:
        this.run(["go", "build", ...], log=Path("build.log"), on_line=lambda line: this.note(line))

On a terminal, one line is updated. Other outputs get a line every ten seconds, and after two minutes every thirty.
Stages do not nest.
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

from rlt_e2e.cluster.locks import exclusive_lock

LIVE_INTERVAL_S = 0.5
INTERVAL_S = 10.0
LONG_INTERVAL_S = 30.0
LONG_AFTER_S = 120.0
TAIL_LINES = 20
MAX_NOTE = 100

finished: dict[str, float] = {}
"""Stage -> seconds, of every stage that this process finished, in order."""


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/rlt``, by default ``~/.cache/rlt``: builds, images and durations. Safe to delete."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlt"


class StageError(ValueError):
    """A step failed. `log` is the file with the reason, `advice` the command or action to try next."""

    def __init__(self, message: str, *, log: Path | None = None, advice: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.advice = advice


def format_progress(name: str, elapsed_s: float, estimate_s: float | None, note: str) -> str:
    """Return a line such as ``build  1:05 of about 7:10  (compiled 812 of 3579 packages)``.

    It has the first MAX_NOTE characters of the note.
    """
    if estimate_s is None:
        estimate = ""
    elif elapsed_s <= estimate_s:
        estimate = f" of about {format_duration(estimate_s)}"
    else:
        estimate = f", longer than the usual {format_duration(estimate_s)}"
    short = note if len(note) <= MAX_NOTE else f"{note[: MAX_NOTE - 1]}…"
    return f"{name}  {format_duration(elapsed_s)}{estimate}" + (f"  ({short})" if note else "")


def format_failure(error: BaseException) -> str:
    """Return the message, the last lines of the log and the advice as plain text."""
    lines = [f"error: {error}"]
    if isinstance(error, StageError):
        if error.log and error.log.exists():
            lines += [f"--- last lines of {error.log}", *read_tail(error.log), "---"]
        if error.advice:
            lines.append(f"next: {error.advice}")
    return "\n".join(lines)


@contextmanager
def exit_with_message() -> Iterator[None]:
    """Exit with status 1 and the message, log and advice of a ValueError, and with 130 after Ctrl-C or SIGTERM."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except ValueError as error:
        print(format_failure(error), file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("\ninterrupted; repeat the command to continue", file=sys.stderr, flush=True)
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


class Stage:
    """The value of ``with stage(...) as this``."""

    def __init__(self, name: str, estimate_s: float | None) -> None:
        self.name = name
        self.estimate_s = estimate_s
        self.started = time.monotonic()
        self._note = ""
        self._ended = threading.Event()
        self._live = sys.stdout.isatty()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started

    def note(self, text: str) -> None:
        """Set what the next progress line shows in parentheses."""
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
        """Run `command` and append its output to `log`. `env` is added to the environment of this process.

        Raises StageError if it cannot start or exits with another status than 0.
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
                raise StageError(f"the program {arguments[0]!r} is not installed", advice=advice) from None
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
            raise StageError(f"{self.name}: exit status {status}, see {log}", log=log, advice=advice)

    def _tick(self) -> None:
        while not self._ended.wait(self._interval_s()):
            line = format_progress(self.name, self.elapsed_s, self.estimate_s, self._note)
            if self._live:
                width = os.get_terminal_size().columns - 1
                print(f"\r\033[K    {line}"[: width + 8], end="", flush=True)
            else:
                print(f"    {line}", flush=True)

    def _interval_s(self) -> float:
        if self._live:
            return LIVE_INTERVAL_S
        return INTERVAL_S if self.elapsed_s < LONG_AFTER_S else LONG_INTERVAL_S

    def _end(self, mark: str) -> None:
        self._ended.set()
        self._ticker.join()
        clear = "\r\033[K" if self._live else ""
        print(f"{clear}{mark}  {self.name}  {self.elapsed_s:.1f} s", flush=True)


@contextmanager
def stage(name: str, *, estimate_s: float | None = None) -> Iterator[Stage]:
    """Print start, progress and end of a stage. Its last duration on this machine replaces `estimate_s`."""
    print(f"==> {name}", flush=True)
    this = Stage(name, _read_durations().get(name, estimate_s))
    try:
        yield this
    except BaseException:
        this._end("FAILED")
        raise
    this._end("ok")
    finished[name] = round(this.elapsed_s, 1)
    record_duration(name, this.elapsed_s)


def format_duration(seconds: float) -> str:
    """Return a text such as ``45 s`` or ``7:10``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}" if seconds >= 60 else f"{seconds:.0f} s"


def read_tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        return file.read().decode(errors="replace").splitlines()[-lines:]


def _durations_file() -> Path:
    return cache_folder() / "durations.json"


def read_duration(name: str) -> float | None:
    """Return the last duration of a stage on this machine in seconds."""
    return _read_durations().get(name)


def _read_durations() -> dict[str, float]:
    try:
        known = json.loads(_durations_file().read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return {str(name): float(seconds) for name, seconds in known.items()}


def record_duration(name: str, seconds: float) -> None:
    """Record the duration of a stage on this machine."""
    file = _durations_file()
    with exclusive_lock(file.with_suffix(".lock")):
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({**_read_durations(), name: round(seconds, 1)}, indent=1))
        draft.replace(file)
