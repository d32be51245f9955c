"""Locks between processes: one process at a time builds or changes a cluster."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(lock: Path) -> Iterator[None]:
    """Hold the lock file `lock`, which is created if missing. Prints a line if it has to wait.

    The kernel releases the lock when the process ends.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"    waiting for another process that holds {lock}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
