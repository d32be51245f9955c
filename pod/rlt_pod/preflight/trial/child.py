"""A child process whose output is copied and whose last lines are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class Ended:
    """The end of a child process."""

    code: int | None
    """Exit code. None: it ran until the timeout."""
    last_lines: tuple[str, ...]
    """The last lines of its output that are not empty."""


def run_child(
    command: Sequence[str],
    timeout_s: float,
    *,
    lines: int,
    on_line: Callable[[str], None] = lambda line: None,
    variables: Mapping[str, str] | None = None,
    working_directory: str | None = None,
    own_session: bool = False,
) -> Ended:
    """Run a program, with `variables` in addition to this process's, and keep its last lines.

    `on_line` is called with each line. `own_session`: whether the processes that it leaves are ended with it. Raises
    OSError if the program cannot be started.
    """
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=working_directory,
        env={**os.environ, **(variables or {})},
        start_new_session=own_session,
    )
    expired = threading.Event()

    def stop() -> None:
        expired.set()
        _kill(child, own_session=own_session)

    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    if own_session:
        threading.Thread(target=_end_session, args=(child,), daemon=True).start()
    kept: deque[str] = deque(maxlen=lines)
    assert child.stdout
    try:
        for line in child.stdout:
            print(line, end="", flush=True)
            on_line(line)
            if line.strip():
                kept.append(line.strip())
        code = child.wait()
    finally:
        timer.cancel()
    return Ended(None if expired.is_set() else code, tuple(kept))


def _end_session(child: subprocess.Popen[str]) -> None:
    """End the processes that the child leaves, which keep its output open."""
    child.wait()
    _kill(child, own_session=True)


def _kill(child: subprocess.Popen[str], *, own_session: bool) -> None:
    try:
        if own_session:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except ProcessLookupError:  # all have ended
        pass
