"""status.usage: the accelerators that the pods held, times seconds, by what the accelerators did.

Each write of the status continues where the last one ended (usage.observedTime), from the pods that exist and the time
when each of them got its node. No interval counts twice, also after a crash of the operator, and a write that fails is
made up for by the next one. The end of a pod has the time at which the operator records it, and causes a write.

The states queued, starting, running and idle follow each other in an attempt. What was counted while the program runs
is divided again by each of its reports, which have the seconds of each phase since its start, so that neither a missed
report nor rounding adds up to an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal, NamedTuple

from rlt_api.frameworks.registry import get_framework
from rlt_api.frameworks.replaceable_pods import count_needed
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.training_config import PhaseSeconds, ProgressReport
from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import RunUsage, Usage, UsageParts
from rlt_core.job import has_ended
from rlt_operator.conditions import format_time
from rlt_operator.memory.usage_days import add_days, split_days
from rlt_operator.observation import Observed
from rlt_operator.verdict import Verdict

State = Literal["queued", "starting", "running", "idle"]
PHASES = ("generate", "update", "sync", "evaluate", "idle")
"""The phases of a report, which add up to the time that it covers."""
ENDED = ("Succeeded", "Failed")
"""Phases of a pod whose accelerators are free."""

Parts = Mapping[str, int]


class Held(NamedTuple):
    """Accelerators that are held from a time on, in Unix seconds."""

    since: int
    accelerators: int


@dataclass(frozen=True)
class Starts:
    """When each state began, in Unix seconds: infinite if it has not begun, and minus infinite if it had before."""

    starting: float = math.inf
    running: float = math.inf
    idle: float = math.inf

    def find_state(self, time: float) -> State:
        """The state at this time. The last one that has begun counts."""
        if time >= self.idle:
            return "idle"
        if time >= self.running:
            return "running"
        return "starting" if time >= self.starting else "queued"


@dataclass(frozen=True)
class Program:
    """What is known about the program when the usage is counted."""

    phases: PhaseSeconds | None = None
    """The seconds of its latest report; None without a report, or without phases in it."""
    has_ended: bool = False
    has_succeeded: bool = False


def count_usage(observed: Observed, verdict: Verdict, now: datetime) -> Usage | None:
    """The usage until now. None before a pod with accelerators has a node."""
    job = observed.job
    old = job.status.usage
    if job.spec is None:
        return old
    held = _list_held(observed, job.spec)
    if not held and (old is None or not old.accelerators):
        return old
    end = math.floor(now.timestamp())
    counted = _parse(old.observed_time) if old else min(each.since for each in held)
    program = _describe_program(observed, verdict)
    starts = _find_starts(observed, job.spec, old, held, program, end)
    return count(old, held, starts, program, min(counted, end) if old is None else counted, end)


def has_released(observed: Observed) -> bool:
    """Whether pods have ended that the recorded usage counts."""
    job = observed.job
    if job.spec is None or job.status.usage is None:
        return False
    return sum(each.accelerators for each in _list_held(observed, job.spec)) < job.status.usage.accelerators


def continue_usage(usage: Usage | None, report: ProgressReport, now: datetime) -> Usage | None:
    """The usage until now of a running program whose pods have not changed."""
    if usage is None:
        return None
    counted = _parse(usage.observed_time)
    held = [Held(counted, usage.accelerators)]
    starts = Starts(running=-math.inf)
    return count(usage, held, starts, Program(report.phases), counted, math.floor(now.timestamp()))


def end_usage(usage: Usage, now: datetime) -> Usage:
    """The usage of a job that was deleted now. What its program has not saved is lost."""
    if not usage.accelerators and usage.run is None:
        return usage
    counted = _parse(usage.observed_time)
    began = {state: -math.inf for state in (usage.state,) if state in ("starting", "running", "idle")}
    held = [Held(counted, usage.accelerators)]
    return count(usage, held, Starts(**began), Program(has_ended=True), counted, math.floor(now.timestamp()))


def count(old: Usage | None, held: Sequence[Held], starts: Starts, program: Program, counted: int, end: int) -> Usage:
    """Add what was held from `counted` to `end`. Pods that were held then and are gone count to the end.

    A clock that was set back adds nothing.
    """
    end = max(counted, end)
    accelerators = sum(each.accelerators for each in held)
    before = sum(each.accelerators for each in held if each.since <= counted)
    gone = max(0, old.accelerators - before) if old else 0
    added = Counter[str]()
    added_days = Counter[str]()
    for each in (*held, Held(counted, gone)):
        start = min(max(each.since, counted), end)
        for state, seconds in _split_time(start, end, starts):
            added[state] += seconds * each.accelerators
        for day, seconds in split_days(start, end):
            added_days[day] += seconds * each.accelerators
    earlier = old.run if old else None
    closed = _subtract(old.by, earlier.by) if old and earlier else (old.by.model_dump() if old else {})
    closed = _add(closed, {name: added[name] for name in ("queued", "starting", "idle")})
    run = None
    if earlier or added["running"] or starts.find_state(end) == "running":
        began = _parse(earlier.start_time) if earlier else round(max(counted, min(starts.running, end)))
        run = _divide(earlier, began, added["running"], program, end)
        keeps_all = program.has_succeeded or not program.has_ended
        closed = _add(closed, run.by.model_dump() if keeps_all else _lose(run))
    by = UsageParts.model_validate(closed)
    return Usage(
        accelerator_seconds=sum(closed.values()),
        by=by,
        days=add_days(old.days if old else [], added_days, by),
        observed_time=_format(end),
        accelerators=accelerators,
        state=starts.find_state(end) if accelerators else None,
        run=None if program.has_ended else run,
    )


def split(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Divide a total in proportion to the weights. The largest remainders are rounded up, so that the sum is exact."""
    weight = sum(weights.values())
    if weight <= 0:
        return dict.fromkeys(weights, 0)
    shares = {name: total * value / weight for name, value in weights.items()}
    parts = {name: math.floor(share) for name, share in shares.items()}
    missing = total - sum(parts.values())
    for name in sorted(shares, key=lambda each: parts[each] - shares[each])[:missing]:
        parts[name] += 1
    return parts


def _list_held(observed: Observed, spec: RLTrainingJobSpec) -> list[Held]:
    """The accelerators of each pod that has a node and has not ended, also of one that is terminating."""
    of_group = {group.name: group.accelerator.count for group in spec.cluster.workers if group.accelerator}
    found = []
    for pod in observed.job_pods:
        since = pod.scheduled or pod.created
        accelerators = 0 if pod.is_head else of_group.get(pod.group or "", 0)
        if accelerators and pod.node and since and pod.phase not in ENDED:
            found.append(Held(math.floor(since.timestamp()), accelerators))
    return found


def _describe_program(observed: Observed, verdict: Verdict) -> Program:
    cluster = observed.owned_cluster
    ray = observed.ray
    report = verdict.report or (ray.progress if ray else None)
    result = ray.job.status if ray and ray.job else None
    attempts = observed.job.status.attempts
    released = cluster is None or cluster.deleting or bool(cluster.suspend) or verdict.delete_cluster is not None
    current = observed.attempt
    failed = verdict.attempt is not None or (current is not None and has_ended(current, attempts))
    succeeded = result == "SUCCEEDED" or verdict.is_true(ConditionType.SUCCEEDED)
    ended = released or failed or verdict.is_final or result not in (None, "PENDING", "RUNNING")
    return Program(report.phases if report else None, ended, succeeded)


def _find_starts(
    observed: Observed, spec: RLTrainingJobSpec, old: Usage | None, held: list[Held], program: Program, end: int
) -> Starts:
    """When the states began that follow the recorded one. Pods after the release of earlier ones begin again."""
    before = old.state if old and old.accelerators and (program.has_ended or old.state != "idle") else "queued"
    if before == "idle":
        return Starts(idle=-math.inf)
    ended = min(end, _get_end(observed) or end) if program.has_ended else math.inf
    if before == "running":
        return Starts(running=-math.inf, idle=ended)
    until = min(ended, end)
    if program.phases:
        running = math.floor(until - sum(getattr(program.phases, name) for name in PHASES))
    else:
        running = math.inf if program.has_ended else _find_unreported_start(observed, spec, end)
    if before == "starting":
        return Starts(-math.inf, running, ended)
    groups = [group for group in spec.cluster.workers if group.accelerator]
    needed = sum(count_needed(group) * group.accelerator.count for group in groups if group.accelerator)
    all_held = held and sum(each.accelerators for each in held) >= needed
    return Starts(max(each.since for each in held) if all_held else math.inf, running, ended)


def _find_unreported_start(observed: Observed, spec: RLTrainingJobSpec, end: int) -> float:
    """When a program began that reports no phases: past its stage preparing, or at once if it may report nothing."""
    ray = observed.ray
    if ray is None or ray.job is None or ray.job.status != "RUNNING":
        return math.inf
    if ray.progress:
        return math.inf if ray.progress.stage == "preparing" else end
    if get_framework(spec).reports_progress or ray.job.start_ms is None:
        return math.inf
    return min(end, ray.job.start_ms // 1000)


def _get_end(observed: Observed) -> int | None:
    """When the program ended, by the clock of its head; None if Ray does not report it."""
    job = observed.ray.job if observed.ray else None
    return job.end_ms // 1000 if job and job.end_ms and job.status not in ("PENDING", "RUNNING") else None


def _split_time(start: int, end: int, starts: Starts) -> Iterable[tuple[State, int]]:
    """The seconds of an interval in each state."""
    cuts = [round(each) for each in (starts.starting, starts.running, starts.idle) if start < each < end]
    for first, second in pairwise(sorted((start, *cuts, end))):
        yield starts.find_state(first), second - first


def _divide(earlier: RunUsage | None, start: int, added: int, program: Program, end: int) -> RunUsage:
    """The accelerator seconds of the program, divided by its report. Without one, the new ones are unreported."""
    parts = earlier.by.model_dump() if earlier else {}
    phases = program.phases
    seconds = {name: getattr(phases, name) for name in PHASES} if phases else {}
    covered = sum(seconds.values())
    if phases is None or covered == 0:
        by = UsageParts.model_validate(_add(parts, {"unreported": added}))
        reported = sum(getattr(by, name) for name in PHASES)
        at_risk = earlier.at_risk + added if earlier and reported else 0
        return RunUsage(start_time=_format(start), at_risk=at_risk, by=by)
    total = sum(parts.values()) + added
    by = UsageParts.model_validate(split(total, {**seconds, "unreported": max(0.0, end - start - covered)}))
    share = min(1.0, phases.uncommitted / covered)
    at_risk = by.unreported + round(share * (total - by.unreported))
    return RunUsage(start_time=_format(start), at_risk=at_risk, by=by)


def _lose(run: RunUsage) -> Parts:
    """The parts of a program that ended early: what is at risk is lost, first the unreported part."""
    parts = run.by.model_dump()
    unreported = min(parts["unreported"], run.at_risk)
    phases = {name: parts[name] for name in PHASES}
    kept = split(sum(phases.values()) - (run.at_risk - unreported), phases)
    return {**parts, **kept, "unreported": parts["unreported"] - unreported, "lost": run.at_risk}


def _add(parts: Parts, more: Parts) -> dict[str, int]:
    return {name: parts.get(name, 0) + more.get(name, 0) for name in UsageParts.model_fields}


def _subtract(parts: UsageParts, less: UsageParts) -> dict[str, int]:
    return {name: getattr(parts, name) - getattr(less, name) for name in UsageParts.model_fields}


def _parse(time: str) -> int:
    return math.floor(datetime.fromisoformat(time).timestamp())


def _format(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
