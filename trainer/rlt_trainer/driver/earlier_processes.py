"""The check for processes of an earlier attempt on the same Ray cluster, which runs beside the imports of the driver.

The check is a separate process, because Ray pickles only the functions of `__main__` by value.
"""

from __future__ import annotations

import subprocess
import sys

from rlt_pod.clear import TIMEOUT_S
from rlt_trainer.errors import TrainingError

LIMIT_S = TIMEOUT_S + 60.0
"""The time that the check itself waits, and time to import and join Ray."""


class NotClearError(TrainingError):
    """The program may not start: processes of an earlier attempt may exist."""


def start_check(nodes: int) -> subprocess.Popen[str]:
    """Start the check (rlt_pod/clear.py). `nodes`: number of the Ray cluster's pods."""
    return subprocess.Popen([sys.executable, "-m", "rlt_pod", "clear", str(nodes)], stdout=subprocess.PIPE, text=True)


def await_end(check: subprocess.Popen[str]) -> None:
    """Wait until no process of an earlier attempt is left. Raises NotClearError if one is, or if the check fails."""
    try:
        output = check.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        check.kill()
        raise NotClearError(f"The search for processes of an earlier attempt takes over {LIMIT_S:.0f} s.") from None
    if check.returncode != 0:
        found = " ".join(output.split()) or f"it ended with code {check.returncode}"
        raise NotClearError(f"Processes of an earlier attempt may exist: {found}.")
    print(output, end="", flush=True)
