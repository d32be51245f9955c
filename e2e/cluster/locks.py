"""Let one process at a time build or change a cluster."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold `lock` (a file made if need be); says so where it has to wait. Ends with the process at the latest."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"    waiting for another process that holds {lock}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
