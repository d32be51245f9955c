"""Polls all jobs' Ray heads outside of reconciliations: a head that hangs delays its own job only.

Each head has its own task. A changed answer wakes the job, and a reconciliation reads the latest answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rlt_api.spec.training_config import ProgressReport
from rlt_core.ray_http import Head, Send
from rlt_operator import metrics
from rlt_operator.observation import Ray, choose_progress_interval
from rlt_operator.ray.jobs import observe_ray
from rlt_operator.work_queue import Key

MIN_INTERVAL_S = 2.0
"""Interval between two requests to a head whose job starts or ends."""
MAX_INTERVAL_S = 10.0
"""Maximum interval for a head that answers."""
MAX_BACKOFF_S = 30.0
"""Maximum interval for a head that does not answer."""
INTERVAL_PER_HEAD_S = 0.005
"""Added to the minimum for each head, so that 1,000 heads get at most 140 requests per second."""
TOLERATED_FAILURES = 3
"""A head that answered before is reported as unreachable after this number of failures in succession."""
AFTER_STEP_S = 0.5
"""Delay from the expected end of a step to the request."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """What to ask which head."""

    head: Head
    pod_uid: str
    submission_id: str
    step_id: str | None = None
    """Set while a step of spec.framework.prepare has not succeeded."""
    preflight_id: str | None = None
    """Set for a job with preflight checks."""
    stacks_id: str | None = None
    """Set while the stacks of the job's processes are written."""


class RayPoller:
    """The answers of the heads. Holds no state that a restart could lose."""

    def __init__(self, send: Send, on_change: Callable[[Key], None]) -> None:
        self._send = send
        self._on_change = on_change
        self._targets: dict[Key, Target] = {}
        self._answers: dict[Key, Ray] = {}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._nudged: dict[Key, asyncio.Event] = {}

    def poll(self, key: Key, target: Target | None) -> Ray | None:
        """Poll this head from now on, or none. Returns its latest answer; None before the first one."""
        if target != self._targets.get(key):
            self.forget(key)
            if target:
                self._targets[key] = target
                self._nudged[key] = asyncio.Event()
                self._tasks[key] = asyncio.create_task(self._run(key, target), name=f"poll {key[0]}/{key[1]}")
            metrics.POLLED_HEADS.set(len(self._targets))
        return self._answers.get(key)

    def count(self) -> int:
        """Number of heads that are polled."""
        return len(self._targets)

    def get_answer(self, key: Key) -> Ray | None:
        """The latest answer of the job's head; None before the first one."""
        return self._answers.get(key)

    def nudge(self, key: Key) -> None:
        """Ask the head at once: the operator has sent it a command."""
        if key in self._nudged:
            self._nudged[key].set()

    def distrust(self, key: Key, cause: str) -> bool:
        """Treat the head as one that does not answer, until its answer changes. Returns whether it had an answer."""
        answer = self._answers.get(key)
        if answer is None or answer.unreachable:
            return False
        self._answers[key] = Ray(unreachable=f"its answer cannot be used: {cause}")
        return True

    def forget(self, key: Key) -> None:
        """Stop polling the head of a job."""
        self._targets.pop(key, None)
        self._answers.pop(key, None)
        self._nudged.pop(key, None)
        if task := self._tasks.pop(key, None):
            task.cancel()

    async def close(self) -> None:
        """Stop polling all heads."""
        tasks = list(self._tasks.values())
        for key in list(self._targets):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key, target: Target) -> None:
        nudged = self._nudged[key]
        pace = Pace()
        while True:
            nudged.clear()
            started = time.monotonic()
            before = self._answers.get(key)
            answer = await self._ask(key, target, before)
            metrics.RAY_SECONDS.observe(time.monotonic() - started)
            interval = pace.choose_interval(answer, time.monotonic(), heads=len(self._targets))
            if answer.unreachable:
                metrics.RAY_ERRORS.inc()
            silent = answer.unreachable and (before is None or pace.failures >= TOLERATED_FAILURES)
            if answer != before and (silent or not answer.unreachable):
                self._answers[key] = answer
                self._on_change(key)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(nudged.wait(), interval)

    async def _ask(self, key: Key, target: Target, before: Ray | None) -> Ray:
        ids = {
            "step_id": target.step_id,
            "preflight_id": target.preflight_id,
            "stacks_id": target.stacks_id,
        }
        try:
            return await observe_ray(self._send, target.head, target.submission_id, **ids, before=before)
        except Exception as error:  # an answer that breaks the parser must not end the polling of the head
            log.exception("cannot read the Ray head's answer for %s/%s", *key)
            return Ray(unreachable=f"its answer cannot be read: {type(error).__name__}")


class Pace:
    """Chooses when to ask a head again: often at the start and the end, once for each step in between."""

    def __init__(self) -> None:
        self.failures = 0
        """Requests without an answer since the last answer."""
        self._unchanged = 0
        self._report: ProgressReport | None = None
        self._reported_at = 0.0
        self._asked_at = 0.0

    def choose_interval(self, answer: Ray, now: float, *, heads: int) -> float | None:
        """Seconds to the next request; None if the answer is final. `now` is a time of time.monotonic."""
        shortest = MIN_INTERVAL_S + INTERVAL_PER_HEAD_S * heads
        if answer.unreachable:
            self.failures += 1
            return min(MAX_BACKOFF_S, max(shortest, 2.0 ** (self.failures - 1)))
        self.failures = 0
        if answer.job is None or answer.job.status == "PENDING":
            return self._wait_longer(shortest)
        if answer.job.status != "RUNNING":
            return None
        if answer.stacks:
            return shortest
        report = answer.progress
        if report is None or not report.seconds_per_step:
            return self._wait_longer(shortest)
        if report != self._report:
            self._reported_at = self._estimate_end(report, now)
            self._unchanged = 0
            self._report = report
        self._asked_at = now
        if report.total_steps and report.step >= report.total_steps - 1:
            return shortest
        expected = self._reported_at + report.seconds_per_step + AFTER_STEP_S - now
        useful = choose_progress_interval(heads)  # the status is not written more often
        return max(shortest, useful, min(MAX_INTERVAL_S, expected))

    def _estimate_end(self, report: ProgressReport, now: float) -> float:
        """When the latest step has ended: after the previous request, and as long after the known steps as they take.

        Without the estimate each request would be later than the one before, by the time since the end of the step.
        """
        if self._report is None:
            return now
        expected = self._reported_at + (report.step - self._report.step) * (report.seconds_per_step or 0.0)
        return min(now, max(self._asked_at, expected))

    def _wait_longer(self, shortest: float) -> float:
        """A longer interval each time that nothing has started."""
        self._unchanged += 1
        return min(MAX_INTERVAL_S / 2, shortest * 1.2**self._unchanged)
