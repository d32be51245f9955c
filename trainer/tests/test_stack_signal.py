"""A process of the trainer writes its stacks on SIGUSR1, to a file that other processes can read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rlt_pod.report.driver_report import STACK_FILE

PROGRAM = """
import threading
from rlt_trainer.cluster.stack_signal import write_stacks_on_signal
write_stacks_on_signal()
def the_blocking_function():
    print("ready", flush=True)
    threading.Lock().acquire() and threading.Event().wait()
the_blocking_function()
"""


def test_a_blocked_process_writes_its_stacks() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        files = [file for file in Path(f"/proc/{process.pid}/fd").iterdir() if STACK_FILE in os.readlink(file)]
        assert len(files) == 1
        os.kill(process.pid, signal.SIGUSR1)
        end = time.monotonic() + 60
        while "in the_blocking_function" not in (text := files[0].read_text()):
            assert time.monotonic() < end, text
        assert process.poll() is None
        process.kill()
