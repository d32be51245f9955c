"""Prometheus metrics of each job, built from its last recorded status at each scrape.

A job has a gauge only while its status has the value, so that a graph has a gap and no stale value. The status has no
NaN: a value that is NaN is missing here, and NaN in the metrics of the trainer. The series of a job that has ended
remain for ENDED_S, longer than two scrapes. Then it is only part of rlt_operator_jobs and rlt_operator_findings, until
it is deleted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rlt_api.status.job_status import Phase, Progress, RLTrainingJobStatus
from rlt_core.children.sandboxes import get_sandbox
from rlt_core.job import Job
from rlt_operator.conditions import get_reason
from rlt_operator.usage_roles import count_by_role, divide_by_role

ENDED_S = 120.0
"""Time after the end of a job in which its series remain: four scrapes of the chart's ServiceMonitor."""

GAUGES = {
    "step": "Steps completed.",
    "total_steps": "Steps in total.",
    "reward": "Mean reward of the latest step.",
    "kl": "Mean KL divergence to the reference model in nats.",
    "entropy": "Mean entropy of the policy in nats.",
    "tokens_per_second": "Tokens of the latest step per second.",
    "gpus": "Accelerators that the job requests.",
    "restarts": "Failed attempts that were followed by another attempt.",
    "disruptions": "Disrupted attempts that were followed by another attempt.",
    "ready_workers": "Worker pods that are ready.",
}
"""Name of a gauge without its prefix -> help text."""
USAGE = (
    "Accelerators that the pods held, times seconds, by their role and by what they did. The sum never falls. At the "
    "end of an attempt, a part moves to lost."
)
SANDBOXES = "Sandbox pods by state: ready, claimed by conversations, or missing from poolSize."


@dataclass(frozen=True)
class _Recorded:
    uid: str
    framework: str
    phase: Phase | None
    reason: str
    findings: tuple[str, ...]
    pods: tuple[str, ...]
    ended: datetime | None
    values: dict[str, float | None]
    roles: dict[str, int]
    """Number of accelerators by role."""
    usage: dict[tuple[str, str], float]
    """Role and part of status.usage.by -> accelerator seconds."""
    sandboxes: dict[str, int]
    """State of sandbox pods -> their number."""


class JobMetrics(Collector):
    """The recorded jobs. Recording takes the same time for any number of jobs."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], _Recorded] = {}

    def record(self, job: Job, status: RLTrainingJobStatus, pods: Sequence[str] = ()) -> None:
        """Replace what is recorded of a job. `pods`: the names of its RayCluster's pods."""
        ended = datetime.fromisoformat(status.completion_time) if status.completion_time else None
        framework = job.spec.framework.type if job.spec else "unknown"
        roles = count_by_role(job.spec) if job.spec else {"unknown": 0}
        self._jobs[job.namespace, job.name] = _Recorded(
            uid=job.uid,
            framework=framework,
            phase=status.phase,
            reason=get_reason(status),
            findings=tuple(sorted({finding.code for finding in status.findings})),
            pods=tuple(pods),
            ended=ended,
            values=_list_values(status),
            roles=roles,
            usage=_list_usage(status, roles),
            sandboxes=_list_sandboxes(job, status),
        )

    def record_report(self, namespace: str, name: str, status: RLTrainingJobStatus) -> None:
        """Replace what a report of the program changes: the progress and the usage."""
        recorded = self._jobs.get((namespace, name))
        if recorded:
            values = {**recorded.values, **_list_progress(status.progress)}
            self._jobs[namespace, name] = replace(recorded, values=values, usage=_list_usage(status, recorded.roles))

    def forget(self, namespace: str, name: str) -> None:
        """Remove a job that no longer exists."""
        self._jobs.pop((namespace, name), None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Build all series."""
        jobs = dict(self._jobs)
        now = datetime.now(UTC)
        phases = GaugeMetricFamily("rlt_operator_jobs", "Jobs by phase and its reason.", labels=["phase", "reason"])
        for (recorded_phase, reason), count in Counter((each.phase, each.reason) for each in jobs.values()).items():
            phases.add_metric([recorded_phase or "", reason], count)
        findings = GaugeMetricFamily("rlt_operator_findings", "Jobs whose status has the finding.", labels=["code"])
        for code, count in Counter(code for each in jobs.values() for code in each.findings).items():
            findings.add_metric([code], count)
        yield from (phases, findings)
        key = ["namespace", "name"]
        info = GaugeMetricFamily("rlt_job_info", "1 for each job.", labels=[*key, "uid", "framework"])
        current = GaugeMetricFamily("rlt_job_phase", "1 for the phase that the job is in.", labels=[*key, "phase"])
        found = GaugeMetricFamily("rlt_job_finding", "1 for each finding of the job.", labels=[*key, "code"])
        pods = GaugeMetricFamily("rlt_job_pod_info", "1 for each pod of the job's RayCluster.", labels=[*key, "pod"])
        usage = GaugeMetricFamily("rlt_job_accelerator_seconds", USAGE, labels=[*key, "role", "phase"])
        sandboxes = GaugeMetricFamily("rlt_job_sandboxes", SANDBOXES, labels=[*key, "state"])
        gauges = {name: GaugeMetricFamily(f"rlt_job_{name}", text, labels=key) for name, text in GAUGES.items()}
        for job, recorded in jobs.items():
            if recorded.ended and (now - recorded.ended).total_seconds() > ENDED_S:
                continue
            info.add_metric([*job, recorded.uid, recorded.framework], 1)
            for phase in Phase if recorded.phase else ():
                current.add_metric([*job, phase.value], phase == recorded.phase)
            for code in recorded.findings:
                found.add_metric([*job, code], 1)
            for pod in recorded.pods:
                pods.add_metric([*job, pod], 1)
            for name, value in recorded.values.items():
                if value is not None and not math.isnan(value):
                    gauges[name].add_metric(job, value)
            for labels, seconds in recorded.usage.items():
                usage.add_metric([*job, *labels], seconds)
            for state, number in recorded.sandboxes.items():
                sandboxes.add_metric([*job, state], number)
        yield from (info, current, found, pods, usage, sandboxes, *gauges.values())


def _list_values(status: RLTrainingJobStatus) -> dict[str, float | None]:
    cluster = status.ray_cluster
    return {
        "gpus": status.gpus,
        "ready_workers": cluster.ready_workers if cluster else 0,
        "restarts": status.restarts or 0,
        "disruptions": status.disruptions or 0,
        **_list_progress(status.progress),
    }


def _list_sandboxes(job: Job, status: RLTrainingJobStatus) -> dict[str, int]:
    sandbox = get_sandbox(job.spec) if job.spec else None
    found = status.sandboxes
    if sandbox is None or found is None:
        return {}
    missing = max(0, sandbox.pool_size - found.ready - found.claimed)
    return {"ready": found.ready, "claimed": found.claimed, "missing": missing}


def _list_usage(status: RLTrainingJobStatus, roles: Mapping[str, int]) -> dict[tuple[str, str], float]:
    return divide_by_role(status.usage.by.model_dump(), roles) if status.usage else {}


def _list_progress(progress: Progress | None) -> dict[str, float | None]:
    return {
        "step": progress.step if progress else None,
        "total_steps": progress.total_steps or None if progress else None,
        "tokens_per_second": progress.tokens_per_second if progress else None,
        "reward": progress.metrics.reward if progress else None,
        "kl": progress.metrics.kl if progress else None,
        "entropy": progress.metrics.entropy if progress else None,
    }
