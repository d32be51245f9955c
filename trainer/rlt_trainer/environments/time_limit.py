"""Calls of an environment that may hang: in a thread beside the one that generates, which waits only so long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from rlt_trainer.rewards.sandbox import MAX_TIMEOUTS

T = TypeVar("T")
Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class TimeLimit:
    """For the calls of one batch, which are made one after the other, in one thread as long as none hangs.

    A thread cannot be ended from outside. One that is too late is left behind, and the next calls have a new one. After
    MAX_TIMEOUTS calls in a row that were too late no more are made: a batch would take hours to fail.
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` is the limit of one call."""
        self._seconds = seconds
        self._late = 0
        self._calls = _thread()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What the function returns. Raises what it raises, and TimeoutError when it is too late."""
        if self._late >= MAX_TIMEOUTS:
            raise TimeoutError(f"it was not called, as {self._late} calls before did not end in time")
        done: Future[T] = Future()
        self._calls.put((done, function, arguments))
        try:
            error = done.exception(self._seconds)
        except TimeoutError:
            self._late += 1
            self.close()
            self._calls = _thread()
            raise TimeoutError(f"it did not end within {self._seconds:g} s") from None
        self._late = 0
        if error is not None:
            raise error
        return done.result()

    def close(self) -> None:
        """The thread ends when its call does."""
        self._calls.put(None)


def _thread() -> SimpleQueue[Call | None]:
    calls: SimpleQueue[Call | None] = SimpleQueue()
    threading.Thread(target=_serve, args=(calls,), name="environment", daemon=True).start()
    return calls


def _serve(calls: SimpleQueue[Call | None]) -> None:
    while (call := calls.get()) is not None:
        done, function, arguments = call
        try:
            done.set_result(function(*arguments))
        except BaseException as error:  # SystemExit of a user's code too: the caller must hear of it
            done.set_exception(error)
