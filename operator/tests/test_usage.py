"""status.usage adds up: over attempts, restarts, suspensions, and crashes of the operator, and per phase."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import observed as o
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt_api.status.job_status import Phase, Usage
from rlt_operator.memory.usage import PHASES, count_usage, split
from rlt_operator.observation import Observed, Pod, Ray, RayJob
from rlt_operator.reconcile.plan import plan
from rlt_operator.verdict import Verdict

START = round(o.NOW.timestamp())
EACH = 8
"""Accelerators of one of the two workers."""
TRAINING: dict[str, Any] = {**o.SPEC, "cluster": o.ON_GPUS["cluster"]}


def worker(name: str, bound: int, **changes: Any) -> Pod:
    """A worker with eight accelerators that got its node `bound` seconds after NOW."""
    pod = replace(o.pods()[1], name=name, uid=f"uid-{name}", group="workers", node="node")
    created = o.NOW + timedelta(seconds=bound - 5)
    return replace(pod, created=created, scheduled=created + timedelta(seconds=5), **changes)


def phases(uncommitted: float = 0, **seconds: float) -> dict[str, float]:
    return {**seconds, "uncommitted": uncommitted}


def training(seconds: dict[str, float] | None, stage: str = "training") -> Ray:
    return Ray(job=RayJob("RUNNING", start_ms=START * 1000), progress=o.report(5, phases=seconds, stage=stage))


@dataclass
class History:
    """A job on two workers, and what the operator records of its usage when it writes the status."""

    observed: Observed = field(default_factory=lambda: replace(o.FRESH, job=o.job(TRAINING)))
    now: int = 0
    held: int = 0
    """Accelerator seconds, by the times of the pods."""

    @property
    def usage(self) -> Usage | None:
        return self.observed.job.status.usage

    @property
    def parts(self) -> dict[str, int]:
        """The parts that are not 0."""
        assert self.usage
        return {name: value for name, value in self.usage.by.model_dump().items() if value}

    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.held += seconds * EACH * sum(not pod.is_head for pod in self.observed.pods)

    def change(self, **changes: Any) -> None:
        self.observed = replace(self.observed, **changes)
        for name in ("owned_cluster", "cluster_pods", "job_pods", "head"):
            self.observed.__dict__.pop(name, None)

    def bind(self, name: str) -> None:
        self.change(cluster=o.cluster(), pods=(*self.observed.pods, worker(name, self.now)))

    def write(self, verdict: Verdict | None = None) -> None:
        usage = count_usage(self.observed, verdict or Verdict(""), o.NOW + timedelta(seconds=self.now))
        status = self.observed.job.status.model_copy(update={"usage": usage})
        self.change(job=replace(self.observed.job, status=status))

    def release(self) -> None:
        self.change(cluster=None, pods=(), ray=None)


def test_each_state_of_an_attempt_is_counted() -> None:
    job = History()
    job.write()
    assert job.observed.job.status.usage is None, "nothing is held"
    job.bind("a")
    job.wait(10)
    job.bind("b")
    job.wait(20)
    job.change(ray=training(None, stage="preparing"))
    job.write()
    assert (job.parts, job.usage and job.usage.state) == ({"queued": 80, "starting": 320}, "starting")
    job.wait(100)
    job.change(ray=training(phases(60, generate=60, update=20, sync=5, evaluate=10, idle=5)))
    job.write()
    expected = {"queued": 80, "starting": 320, "generate": 960, "update": 320, "sync": 80, "evaluate": 160, "idle": 80}
    assert job.parts == expected
    job.wait(30)
    job.write()
    assert job.parts == {**expected, "unreported": 480}, "the current step"
    job.change(ray=o.ended("SUCCEEDED"))
    job.write()
    job.wait(10)
    job.write()
    assert job.parts == {**expected, "idle": 240, "unreported": 480}
    job.release()
    job.write()
    assert job.usage
    assert (job.usage.accelerator_seconds, job.usage.accelerators, job.usage.state) == (job.held, 0, None)
    last = job.usage
    job.wait(1000)
    job.write()
    assert job.usage == last


def test_what_an_attempt_has_not_saved_is_lost() -> None:
    job = History()
    job.bind("a")
    job.bind("b")
    job.wait(100)
    job.change(ray=training(phases(40, generate=50, update=50)))
    job.write()
    assert job.parts == {"generate": 800, "update": 800}
    job.wait(25)
    job.write()
    job.release()
    job.write()
    assert job.parts == {"generate": 480, "update": 480, "lost": 16 * (40 + 25)}


def test_an_attempt_that_saved_its_last_step_loses_the_current_one() -> None:
    job = History()
    job.bind("a")
    job.bind("b")
    job.wait(100)
    job.change(ray=training(phases(0, update=100)))
    job.write()
    job.wait(7)
    job.change(cluster=o.cluster(deleting=True))
    job.write()
    job.wait(5)
    job.release()
    job.write()
    assert job.parts == {"update": 1600, "lost": 7 * 16, "idle": 5 * 16}


def test_a_program_without_phases_is_unreported() -> None:
    job = History(replace(o.FRESH, job=o.job(o.ON_GPUS)))
    job.bind("a")
    job.bind("b")
    job.wait(50)
    job.change(ray=Ray(job=RayJob("RUNNING", start_ms=(START + 20) * 1000)))
    job.write()
    job.wait(10)
    job.change(ray=Ray(job=RayJob("FAILED", start_ms=(START + 20) * 1000, end_ms=(START + 57) * 1000)))
    job.write()
    assert job.parts == {"starting": 20 * 16, "unreported": 37 * 16, "idle": 3 * 16}


def test_an_operator_that_was_down_during_the_start_attributes_it() -> None:
    """From the times of the pods and the report alone."""
    job = History()
    job.bind("a")
    job.wait(10)
    job.bind("b")
    job.wait(300)
    job.change(ray=training(phases(generate=200, update=50)))
    job.write()
    assert job.parts == {"queued": 80, "starting": 50 * 16, "generate": 200 * 16, "update": 50 * 16}


def test_a_lost_write_and_a_clock_that_is_set_back_count_nothing_twice() -> None:
    job = History()
    job.bind("a")
    job.bind("b")
    job.wait(100)
    job.write()
    before = job.observed
    job.wait(10)
    job.write()
    job.observed = before  # the write was rejected
    job.write()
    job.now -= 60
    job.write()
    assert job.usage
    assert job.usage.accelerator_seconds == job.held


def test_a_lying_report_does_not_change_the_total() -> None:
    job = History()
    job.bind("a")
    job.bind("b")
    job.wait(100)
    job.change(ray=training(phases(1e9, generate=1e9, idle=1e-9)))
    job.write()
    job.release()
    job.write()
    assert job.usage
    assert job.usage.accelerator_seconds == sum(job.parts.values()) == job.held
    assert min(job.usage.by.model_dump().values()) >= 0


ATTEMPTS = st.fixed_dictionaries(
    {
        "wait": st.integers(0, 500),
        "between": st.integers(0, 90),
        "start": st.integers(0, 400),
        "steps": st.lists(
            st.tuples(*[st.integers(0, 40)] * 5, st.integers(0, 30), st.booleans(), st.booleans()), max_size=6
        ),
        "end": st.sampled_from(["FAILED", "STOPPED", "SUCCEEDED", "a lost cluster"]),
        "terminates": st.integers(0, 60),
        "suspended": st.sampled_from(["", "between the pods", "before the program"]),
        "in place": st.integers(0, 2),
    }
)


@settings(deadline=None, max_examples=300)
@given(st.lists(ATTEMPTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_parts_add_up_to_what_the_pods_held(attempts: list[dict[str, Any]], random: Any) -> None:
    """Over attempts, suspensions and restarts in place. The operator does not write, or is down, at most changes: it
    writes once each attempt is ready and when pods end."""
    job = History()
    queued = 0
    suspended = 0
    starting = 0
    for number, attempt in enumerate(attempts):
        job.wait(attempt["wait"])  # suspended, or before the next attempt
        job.bind(f"a-{number}")
        job.wait(attempt["between"])
        queued += EACH * attempt["between"]
        if random.random() < 0.5:
            job.write()
        if attempt["suspended"] == "between the pods":
            suspended += EACH * attempt["terminates"]
            _release(job, attempt["terminates"])
            continue
        job.bind(f"b-{number}")
        job.wait(attempt["start"])
        starting += 2 * EACH * attempt["start"]
        if attempt["suspended"]:
            _release(job, attempt["terminates"])
            continue
        for _ in range(attempt["in place"]):
            _run(job, attempt, random)
            _end(job, "FAILED")
            job.write()
            job.wait(attempt["between"])  # the same pods, which are idle until the next program starts
        _run(job, attempt, random)
        _end(job, attempt["end"])
        _release(job, attempt["terminates"])
    usage = job.usage
    assert usage
    assert usage.accelerator_seconds == sum(usage.by.model_dump().values()) == job.held
    assert sum(sum(day.by.model_dump().values()) for day in usage.days) == job.held
    assert min(usage.by.model_dump().values()) >= 0
    assert queued <= usage.by.queued <= queued + suspended
    assert usage.by.starting >= starting
    assert usage.run is None


def _run(job: History, attempt: dict[str, Any], random: Any) -> None:
    """A program that prepares and trains."""
    job.change(ray=training(None, stage="preparing"))
    job.write()
    spent = dict.fromkeys(PHASES, 0)
    committed = 0
    for *seconds, left, saves, writes in attempt["steps"]:
        job.wait(sum(seconds))
        spent = {name: spent[name] + each for name, each in zip(PHASES, seconds, strict=True)}
        total = sum(spent.values())
        committed = total if saves else committed
        job.change(ray=training(phases(total - committed, **spent)))
        if writes:
            job.write()
        job.wait(left)
        if left and random.random() < 0.5:
            job.write()
        spent["idle"] += left


def _release(job: History, terminates: int) -> None:
    job.write()
    job.wait(terminates)
    job.release()
    job.write()


def _end(job: History, end: Any) -> None:
    if end == "a lost cluster":
        job.change(cluster=None, ray=None)
        return
    result = RayJob(end, start_ms=START * 1000, end_ms=(START + job.now) * 1000)
    job.change(ray=replace(job.observed.ray or Ray(), job=result))


@settings(deadline=None)
@given(st.integers(0, 10**12), st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e9), min_size=1))
def test_a_split_is_exact_and_in_proportion(total: int, weights: dict[str, float]) -> None:
    parts = split(total, weights)
    weight = sum(weights.values())
    assert sum(parts.values()) == (total if weight else 0)
    if weight:
        assert all(abs(parts[name] - total * weights[name] / weight) <= 1 + total * 1e-9 for name in weights)


def started() -> Observed:
    """A job on two workers that trains, with its status."""
    pods = (o.pods()[0], worker("a", -100), worker("b", -100))
    observed = o.recorded(replace(o.READY, job=o.job(TRAINING), pods=pods))
    return o.after(replace(observed, ray=training(phases(update=50))))


def test_the_usage_is_written_with_other_changes_and_not_by_itself() -> None:
    observed = started()
    assert observed.job.status.phase == Phase.RUNNING
    assert observed.job.status.usage
    assert observed.job.status.usage.accelerator_seconds == 1600
    later = o.NOW + timedelta(seconds=1)
    assert plan(observed, later).status is None
    report = o.report(6, phases=phases(update=81), updated="2026-01-02T03:04:36Z")
    ray = replace(observed.ray or Ray(), progress=report)
    changed = plan(replace(observed, ray=ray), o.NOW + timedelta(seconds=31))
    assert changed.status
    assert changed.status.usage
    assert changed.status.usage.by.model_dump(exclude_defaults=True) == {"starting": 800, "update": 81 * 16}


def test_the_end_of_each_pod_is_written() -> None:
    """Otherwise the first pods to end would count until the last one has ended."""
    succeeded = replace(started(), ray=o.ended("SUCCEEDED", o.final_log()))
    ending = o.after(replace(o.after(succeeded), cluster=o.cluster(deleting=True)))
    assert ending.job.status.usage
    assert ending.job.status.usage.accelerators == 16
    second = o.NOW + timedelta(seconds=1)
    assert plan(ending, second).status is None
    head, first, last = ending.pods
    ended = replace(ending, pods=(head, replace(first, phase="Failed"), last))
    written = plan(ended, second).status
    assert written
    assert written.usage
    assert written.usage.accelerators == 8
    assert written.usage.accelerator_seconds == ending.job.status.usage.accelerator_seconds + 16


def test_a_job_without_accelerators_has_no_usage() -> None:
    assert o.STARTED.job.status.usage is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    job = History()
    job.change(cluster=o.cluster(), pods=(worker("a", 0, phase=phase),))
    job.wait(10)
    job.write()
    assert job.usage is None
