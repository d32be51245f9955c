"""A measuring process whose pod is slow or does not answer: the module that the test of the whole program runs."""

from __future__ import annotations

import os
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from rlt_pod.preflight.facts.all_reduce import Reduction, Rendezvous
from rlt_pod.preflight.process import Process as RealProcess

FOLDER = "PREFLIGHT_TEST_FOLDER"
"""Variable with the folder in which the first process takes its part."""
SLOWDOWN = 20
"""A slow process waits for this multiple of each all-reduce's time, however busy the machine is."""


class Process(RealProcess):
    """The first process that starts plays the part that the folder names. Rank 0 is the one that does not answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._part = next((part for part in ("slow", "dead") if self._take(part)), "")

    def _take(self, part: str) -> bool:
        """Take the part if the folder names it and no other process has it."""
        file = Path(os.environ[FOLDER], part)
        try:
            file.rename(file.with_suffix(f".{self.pod}"))
        except FileNotFoundError:
            return False
        return True

    def measure_network(self) -> Any:
        return os._exit(137) if self._part == "dead" else super().measure_network()

    def all_reduce(self, rendezvous: Rendezvous, rank: int) -> Reduction:
        if rank == 0 and self._take("hanging"):
            threading.Event().wait()
        if self._part != "slow":
            return super().all_reduce(rendezvous, rank)
        dist = import_module("torch.distributed")
        reduce = dist.all_reduce

        def reduce_slowly(*arguments: Any, **options: Any) -> None:
            start = time.perf_counter()
            reduce(*arguments, **options)
            time.sleep(SLOWDOWN * (time.perf_counter() - start))

        with mock.patch.object(dist, "all_reduce", reduce_slowly):
            return super().all_reduce(rendezvous, rank)
