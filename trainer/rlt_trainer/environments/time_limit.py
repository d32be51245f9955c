"""Calls of an environment with a timeout, in a separate thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
MAX_TIMEOUTS = 16
"""Number of consecutive calls that may time out before the remaining calls are skipped."""

Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class TimeLimit:
    """Runs the calls of one batch one after the other in one thread.

    A thread cannot be killed. A thread whose call times out is abandoned, and the next calls use a new one. After
    MAX_TIMEOUTS consecutive timeouts the remaining calls are skipped: the batch would take hours to fail.
    """

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` limits one call."""
        self._timeout_s = timeout_s
        self._timeouts = 0
        self._calls = _start_thread()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call the function. Raises its exceptions, and TimeoutError on timeout."""
        if self._timeouts >= MAX_TIMEOUTS:
            raise TimeoutError(f"it was not called because {self._timeouts} earlier calls timed out")
        done: Future[T] = Future()
        self._calls.put((done, function, arguments))
        try:
            error = done.exception(self._timeout_s)
        except TimeoutError:
            self._timeouts += 1
            self.close()
            self._calls = _start_thread()
            raise TimeoutError(f"it did not end within {self._timeout_s:g} s") from None
        self._timeouts = 0
        if error is not None:
            raise error
        return done.result()

    def close(self) -> None:
        """End the thread after its current call."""
        self._calls.put(None)


def _start_thread() -> SimpleQueue[Call | None]:
    calls: SimpleQueue[Call | None] = SimpleQueue()
    threading.Thread(target=_serve, args=(calls,), name="environment", daemon=True).start()
    return calls


def _serve(calls: SimpleQueue[Call | None]) -> None:
    while (call := calls.get()) is not None:
        done, function, arguments = call
        try:
            done.set_result(function(*arguments))
        except BaseException as error:  # includes SystemExit of user code, which the caller must receive
            done.set_exception(error)
