"""Measures how long a reconciliation blocks the event loop, and names a job that still blocks it in the log.

No Python code runs while a call such as a search with a regular expression holds the interpreter's lock. Python's
faulthandler then writes the stack of the process to its standard error, from a signal of the kernel. The stack has no
values of variables, so that a function of the stack has the name of the job.
"""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Callable, Coroutine, Generator
from types import FunctionType, coroutine
from typing import Any, TypeVar

MAX_BLOCKING_S = 1.0
"""CPU time between two awaits of a reconciliation from which the job is delayed. The Lease is renewed in between."""

STANDARD_ERROR = 2

T = TypeVar("T")


@coroutine
def measure_blocking(work: Coroutine[Any, Any, T], name: str) -> Generator[Any, Any, tuple[T, float]]:
    """Await the coroutine. Returns its result, and its longest CPU time between two awaits in seconds.

    After MAX_BLOCKING_S between two awaits the stack is logged once, in which a function has this name.
    """
    faulthandler.register(signal.SIGPROF, file=STANDARD_ERROR, all_threads=False)
    call = name_call(name)
    longest = 0.0
    thrown: BaseException | None = None
    while True:
        started = time.thread_time()
        signal.setitimer(signal.ITIMER_PROF, MAX_BLOCKING_S)
        try:
            awaited = call(work.throw, thrown) if thrown else call(work.send, None)
        except StopIteration as end:
            return end.value, max(longest, time.thread_time() - started)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        longest = max(longest, time.thread_time() - started)
        thrown = None
        try:
            yield awaited
        except BaseException as error:  # a cancellation
            thrown = error


def name_call(name: str) -> Callable[[Callable[[Any], Any], Any], Any]:
    """Build a function with this name in stacks, which calls a function with one argument."""
    return FunctionType(_call.__code__.replace(co_name=name, co_qualname=name), globals())


def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    return function(argument)
