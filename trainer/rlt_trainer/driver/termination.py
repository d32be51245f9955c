"""Graceful termination: the loop checks for SIGTERM where it can stop without losing a step."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from rlt_trainer.errors import Terminated


class Termination:
    """Handles SIGTERM inside its `with` block, in the main thread. Enter it after ray.init, whose handler exits.

    Before `defer`, SIGTERM raises Terminated at once: loading models and starting engines take minutes, and there
    is nothing to save. After it, SIGTERM sets `requested`, which the loop checks between phases. The grace period must
    therefore cover the longest phase and one save.
    """

    def __init__(
        self,
        message: str = "Training was terminated (SIGTERM) before its first step. Existing checkpoints are unchanged.",
    ) -> None:
        """`message`: of the error before `defer`."""
        self._message = message
        self.requested = False
        self._deferred = False
        self._previous_handler: Any = None

    def defer(self) -> None:
        """From now on, set `requested` instead of raising Terminated."""
        self._deferred = True

    def __enter__(self) -> Termination:
        self._previous_handler = signal.signal(signal.SIGTERM, self._request)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, self._previous_handler)

    def _request(self, signal_number: int, frame: FrameType | None) -> None:
        if self.requested:
            return
        self.requested = True
        if not self._deferred:
            raise Terminated(self._message)
        print("[terminating] SIGTERM received: saving a checkpoint after this phase", flush=True)
