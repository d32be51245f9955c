"""Runs coroutines of the operator at a time that the explorer chooses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Any, TypeVar
from unittest import mock

from exploration.api_server import START
from exploration.failing_jobs import failing_jobs
from exploration.versions import two_versions

from rlt_core.token_key import TokenKey
from rlt_operator.cache import cache, recent_reads
from rlt_operator.lifecycle import masking
from rlt_operator.reconcile import backoff, blocking, events, failures
from rlt_operator.reconcile import reconcile as reconciliation

T = TypeVar("T")


class Clock:
    """Replaces `datetime` and `time` in the modules that read the time."""

    seconds = 0.0
    cpu_seconds = 0.0

    def now(self, zone: tzinfo) -> datetime:
        return (START + timedelta(seconds=self.seconds)).astimezone(zone)

    def monotonic(self) -> float:
        return self.seconds

    def thread_time(self) -> float:
        return self.cpu_seconds


class NoTimer:
    """Replaces `signal` and `faulthandler` where the operator measures CPU time.

    The garbage collection of all worlds takes longer than a reconciliation may.
    """

    SIGPROF = 0
    ITIMER_PROF = 0

    def setitimer(self, timer: int, seconds: float) -> None:
        pass

    def register(self, number: int, **options: object) -> None:
        pass


CLOCK = Clock()
_loops: list[asyncio.AbstractEventLoop] = []


@contextmanager
def simulation() -> Iterator[None]:
    """Replace the clock, the names of tokens and what versions and jobs do, and open the event loop of `run_at`."""
    with ExitStack() as stack:
        for module, name in (
            (reconciliation, "datetime"),
            (failures, "datetime"),
            (failures, "time"),
            (backoff, "time"),
            (blocking, "time"),
            (events, "time"),
            (cache, "time"),
            (recent_reads, "time"),
        ):
            stack.enter_context(mock.patch.object(module, name, CLOCK))
        for name in ("signal", "faulthandler"):
            stack.enter_context(mock.patch.object(blocking, name, NoTimer()))
        stack.enter_context(two_versions())
        stack.enter_context(failing_jobs(CLOCK))
        stack.enter_context(mock.patch.object(TokenKey, "derive_suffix", return_value=""))
        # The job has no secrets, and the walk through its spec takes a third of the time.
        stack.enter_context(mock.patch.object(masking, "list_secrets", return_value=()))
        logger = logging.getLogger("rlt_operator")
        stack.callback(setattr, logger, "disabled", logger.disabled)
        logger.disabled = True
        loop = asyncio.new_event_loop()
        stack.callback(loop.close)
        _loops.append(loop)
        stack.callback(_loops.pop)
        yield


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits nothing but its turn, also while another one runs."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result


def run_at(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Its clock stands still."""
    CLOCK.seconds = seconds
    return _loops[-1].run_until_complete(work)
