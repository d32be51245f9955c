"""The stacks of a process on SIGUSR1, for nodes whose kernel does not permit py-spy (rlt_pod/dump_stacks.py)."""

from __future__ import annotations

import faulthandler
import os
import signal

from rlt_pod.report.driver_report import STACK_FILE


def write_stacks_on_signal() -> None:
    """On SIGUSR1, append the stacks of all threads to a file in memory, also while Python waits in C code such as NCCL.

    Other processes of the user read the file by /proc/PID/fd.
    """
    faulthandler.register(signal.SIGUSR1, file=os.memfd_create(STACK_FILE), all_threads=True)
