"""SIGTERM as a wish: the loop asks for it where it can end without losing a step."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Termination:
    """From `with` on, SIGTERM ends nothing but is remembered. In the main thread, and after ray.init, which has a
    handler of its own that exits at once.

    The loop asks between phases, so that the grace period has to hold the longest phase and one save.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> Termination:
        self._before = signal.signal(signal.SIGTERM, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _request(self, signal_number: int, frame: FrameType | None) -> None:
        if not self.requested:
            print("[terminating] SIGTERM: a checkpoint is made after this phase", flush=True)
        self.requested = True
