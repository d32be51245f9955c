"""Processes of the cluster on the machine: started as daemons, found by a marker in their environment.

Unlike a recorded pid, a marker cannot become stale, exists from the start of the process, and is inherited by child
processes such as containerd's shims. It contains the state folder, which distinguishes clusters on the same machine.
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

from rlt_e2e.cluster.stages import StageError

CLUSTER_VARIABLE = "RLT_CLUSTER"
PROCESS_VARIABLE = "RLT_CLUSTER_PROCESS"
GARBAGE_COLLECTION = {"GOGC": "200", "GOMEMLIMIT": "10GiB"}
"""Go's default of 100 costs kube-apiserver a third more CPU time, and saves 0.6 GiB at its peak. The limit keeps the
memory of a machine for the other programs when a bench creates thousands of objects."""


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
    """Start a daemon in its own session. Its environment is `PATH`, the markers, GOGC and `environment`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    base = {"PATH": search_path, CLUSTER_VARIABLE: str(state), PROCESS_VARIABLE: name, **GARBAGE_COLLECTION}
    with log.open("a") as out:
        # Popen returns after the exec, so that `list_running` finds the process from now on.
        subprocess.Popen(
            list(map(str, command)),
            env={**base, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            start_new_session=True,
        )


def list_running(state: Path) -> list[Process]:
    """List the processes of the cluster at `state`, without those in containers."""
    marker = f"{CLUSTER_VARIABLE}={state}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            if marker in environment:
                program = (folder / "comm").read_text().strip()
                values = dict(entry.decode(errors="replace").partition("=")[::2] for entry in environment)
                found.append(Process(int(folder.name), values.get(PROCESS_VARIABLE, program), program))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile
    return found


def list_states() -> set[Path]:
    """List the state folders of all clusters with running processes."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            entries = environ.read_bytes().decode(errors="replace").split("\0")
            found |= {Path(entry.partition("=")[2]) for entry in entries if entry.startswith(f"{CLUSTER_VARIABLE}=")}
    return found


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL and return when all have ended. Their data is removed with the cluster, so SIGTERM is not needed."""
    poll = select.poll()
    left = set()
    for pid in pids:
        with suppress(ProcessLookupError):  # has already ended
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
    """Poll `ready`. Raises StageError with `log` after `timeout_s`, or when `alive` returns False."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if not alive():
            raise StageError(
                f"{what}: the process ended", log=log, advice="python -m rlt_e2e.cluster down, then up again"
            )
        if time.monotonic() > deadline:
            raise StageError(
                f"{what}: timeout after {timeout_s:.0f} s", log=log, advice="python -m rlt_e2e.cluster logs"
            )
        time.sleep(0.1)
