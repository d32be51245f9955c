"""A measuring process whose pod is slow or does not answer: the module that the test of the whole program runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rlt_core.preflight.all_reduce import Reduction, Rendezvous
from rlt_core.preflight.process import Process as RealProcess

FOLDER = "PREFLIGHT_TEST_FOLDER"
"""Variable with the folder in which the first process takes its part."""
THROTTLE = """
import os, select, signal, sys
ended = False
while not ended:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    ended = bool(select.select([sys.stdin], [], [], 0.09)[0])
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    ended = ended or bool(select.select([sys.stdin], [], [], 0.01)[0])
"""
"""Lets a process run a tenth of the time, as if it shared its CPU with nine others, until standard input ends."""


class Process(RealProcess):
    """The first process that starts plays the part that the folder names. Rank 0 is the one that does not answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._part = next((part for part in ("slow", "dead") if self._take(part)), "")

    def _take(self, part: str) -> bool:
        """Take the part if the folder names it and no other process has it."""
        file = Path(os.environ[FOLDER], part)
        if not file.exists():
            return False
        file.rename(file.with_suffix(f".{self.pod}"))
        return True

    def measure_network(self) -> Any:
        return os._exit(137) if self._part == "dead" else super().measure_network()

    def all_reduce(self, rendezvous: Rendezvous, rank: int) -> Reduction:
        if rank == 0 and self._take("hanging"):
            threading.Event().wait()
        if self._part != "slow":
            return super().all_reduce(rendezvous, rank)
        throttle = subprocess.Popen([sys.executable, "-c", THROTTLE, str(os.getpid())], stdin=subprocess.PIPE)
        try:
            return super().all_reduce(rendezvous, rank)
        finally:
            assert throttle.stdin
            throttle.stdin.close()
            throttle.wait()
