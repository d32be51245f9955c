"""The end of a process that is not a child of the test."""

from __future__ import annotations

import os
import select

TIMEOUT_S = 60.0
"""For a killed process on a busy machine. A process with a pending signal still counts as running."""


def await_end(pid: int) -> None:
    """Return once the process has ended, also if nothing has waited for it. Raises TimeoutError if it keeps running."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([process], [], [], TIMEOUT_S)[0]:
            raise TimeoutError(f"process {pid} still runs after {TIMEOUT_S:.0f} s")
    finally:
        os.close(process)
