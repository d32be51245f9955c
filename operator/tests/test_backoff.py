"""The delay before the next attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType as C
from rlt_api.status.job_status import Attempt, Phase
from rlt_operator.conditions import find_condition, format_time
from rlt_operator.lifecycle.backoff import count_delay
from rlt_operator.observation import Observed
from rlt_operator.reconcile.plan import plan

TEN_MINUTES = 600


def attempt(number: int, *, ran_s: int = 60, disruption: str | None = None) -> Attempt:
    start = format_time(o.NOW - timedelta(seconds=ran_s))
    end = format_time(o.NOW)
    return Attempt(
        number=number,
        ray_cluster_uid=str(number),
        start_time=start,
        completion_time=end,
        reason="ProgramFailed",
        message="boom",
        disruption=disruption,
    )


@pytest.mark.parametrize(("attempts", "delay"), [
    ([attempt(1)], 10),
    ([attempt(1), attempt(2)], 20),
    ([attempt(number) for number in range(5)], 160),
    ([attempt(number) for number in range(6)], 300),
    ([attempt(number) for number in range(32)], 300),
    ([attempt(1), attempt(2, ran_s=TEN_MINUTES + 1)], 10),
    ([attempt(1), attempt(2, ran_s=TEN_MINUTES + 1), attempt(3)], 20),
    ([attempt(1), attempt(2, ran_s=TEN_MINUTES)], 20),
    ([attempt(1).model_copy(update={"start_time": None})], 10),
    ([attempt(1, disruption="x")], 0),
    ([attempt(1, disruption="x"), attempt(2, disruption="x")], 10),
    ([attempt(1), attempt(2, ran_s=TEN_MINUTES + 1, disruption="x")], 0),
])  # fmt: skip
def test_the_delay_doubles_and_is_reset_by_a_long_attempt(attempts: list[Attempt], delay: int) -> None:
    assert count_delay(attempts) == delay


def test_the_next_attempt_starts_after_its_delay() -> None:
    running = Observed(o.job({**o.SPEC, "failurePolicy": {"maxRestarts": 3}, "pendingDeadlineSeconds": 5}))
    running = o.after(replace(running, cluster=o.cluster(), pods=o.pods(), ray=o.running()))
    failed = o.after(replace(running, ray=o.ended("FAILED", "boom")))
    gone = replace(o.after(failed), cluster=None, pods=(), ray=None)
    early = plan(gone, o.NOW + timedelta(seconds=4))
    assert (early.apply, early.requeue_after) == ((), 6)
    waiting = o.after(gone, now=o.NOW + timedelta(seconds=9))
    condition = find_condition(waiting.job.status, C.RUNNING)
    assert condition
    assert "starts after 10 s, at 2026-01-02T03:04:15Z" in condition.message
    assert waiting.job.status.phase == Phase.PENDING  # the pending deadline does not count
    assert plan(waiting, o.NOW + timedelta(seconds=9.9)).status is None
    assert [each["kind"] for each in plan(waiting, o.NOW + timedelta(seconds=10)).apply][-1] == "RayCluster"
    assert plan(waiting, o.NOW - timedelta(hours=1)).apply  # the clock was set back
