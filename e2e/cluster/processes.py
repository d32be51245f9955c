"""The cluster's host processes: started as daemons, found again by a mark in their environment.

A mark cannot go stale as a recorded pid can, is there from the first moment, and what a daemon starts inherits it
(containerd's shims do). It names the cluster's state folder, so that clusters beside each other stay apart.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.stages import StageError

CLUSTER_MARK = "RLT_CLUSTER"
PROCESS_MARK = "RLT_CLUSTER_PROCESS"


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    program: str


def start(
    name: str,
    command: Sequence[str | Path],
    *,
    state: Path,
    log: Path,
    search_path: str,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start a daemon in a session of its own, with `PATH` and `environment` and nothing else of ours."""
    log.parent.mkdir(parents=True, exist_ok=True)
    marks = {"PATH": search_path, CLUSTER_MARK: str(state), PROCESS_MARK: name}
    with log.open("a") as out:
        # Popen returns when the program itself runs, so that `running` sees it from now on.
        subprocess.Popen(
            list(map(str, command)),
            env={**marks, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            start_new_session=True,
        )


def running(state: Path) -> list[Process]:
    """The processes of the cluster at `state`, containers' own apart."""
    mark = f"{CLUSTER_MARK}={state}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            if mark in environment:
                program = (folder / "comm").read_text().strip()
                values = dict(entry.decode(errors="replace").partition("=")[::2] for entry in environment)
                found.append(Process(int(folder.name), values.get(PROCESS_MARK, program), program))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended while we looked
    return found


def kill(pids: Iterable[int]) -> None:
    """SIGKILL; returns when all have ended. What they did is thrown away with the cluster, so none needs a warning."""
    poll = select.poll()
    left = set()
    for pid in pids:
        with suppress(ProcessLookupError):  # ended before
            handle = os.pidfd_open(pid)
            left.add(handle)
            poll.register(handle, select.POLLIN)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while left and (remaining_s := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(remaining_s * 1000):
            poll.unregister(handle)
            os.close(handle)
            left.remove(handle)
    assert not left, f"{len(left)} processes survived SIGKILL for 10 s"


def wait_for(
    what: str, ready: Callable[[], bool], *, timeout_s: float, log: Path, alive: Callable[[], bool] = lambda: True
) -> None:
    """Poll `ready`; raises StageError with `log` when the time is over or `alive` says that it is of no use."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if not alive():
            raise StageError(f"{what}: the process ended", log=log, advice="python -m cluster down, then up again")
        if time.monotonic() > deadline:
            raise StageError(f"{what}: not after {timeout_s:.0f} s", log=log, advice="python -m cluster logs")
        time.sleep(0.1)
