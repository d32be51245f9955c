"""SIGTERM as a wish: the loop asks for it where it can end without losing a step."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from rlt_trainer.errors import Terminated


class Termination:
    """From `with` on, in the main thread, and after ray.init, which has a handler of its own that exits at once.

    Until `steps_begin` SIGTERM raises Terminated wherever the main thread is: loading models and starting engines take
    minutes, and nothing is there to be saved. From then on it is remembered, and the loop asks between phases, so that
    the grace period has to hold the longest phase and one save.
    """

    def __init__(self) -> None:
        self.requested = False
        self._in_steps = False
        self._before: Any = None

    def steps_begin(self) -> None:
        """From now on there is something to lose."""
        self._in_steps = True

    def __enter__(self) -> Termination:
        self._before = signal.signal(signal.SIGTERM, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _request(self, signal_number: int, frame: FrameType | None) -> None:
        if self.requested:
            return
        self.requested = True
        if not self._in_steps:
            raise Terminated(
                "The training was asked to end (SIGTERM) before its first step. Checkpoints are as they were."
            )
        print("[terminating] SIGTERM: a checkpoint is made after this phase", flush=True)
