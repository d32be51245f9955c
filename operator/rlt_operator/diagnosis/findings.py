"""Known failures in what is observed of an attempt: the output of the program, the ends of its pods, events. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache

from rlt_api.status import FailureFinding
from rlt_core.knowledge.diagnosis import LogFinding, diagnose_logs
from rlt_operator.diagnosis.faulty_node import ADDRESS
from rlt_operator.observation import Observed, Pod, list_cluster_pods

MAX_FINDINGS = 8
"""Maximum number of findings in the status."""


def find_failures(observed: Observed) -> list[FailureFinding]:
    """The known failures of the attempt, the best explanation first.

    Wrappers, which report that another process failed, count only without any other finding.
    """
    sources = list(_list_evidence(observed))
    found = _diagnose(tuple(text for text, _ in sources))
    found = [each for each in found if each.severity != "wrapper"] or found
    return [_locate(each, sources[each.log][1], observed) for each in found[:MAX_FINDINGS]]


@lru_cache(maxsize=64)
def _diagnose(texts: tuple[str, ...]) -> list[LogFinding]:
    """Cached: an attempt that waits for its restart is planned again and again."""
    return diagnose_logs(io.BytesIO(text.encode("utf-8", "replace")) for text in texts)


def _list_evidence(observed: Observed) -> Iterator[tuple[str, Pod | None]]:
    """Texts, each with the pod that it is about."""
    pods = list_cluster_pods(observed)
    head = next((pod for pod in pods if pod.is_head), None)
    if observed.ray and observed.ray.job:
        yield observed.ray.log or observed.ray.job.message, head
    for pod in pods:
        lines = [pod.reason, pod.message, pod.unschedulable]
        lines += [each.message for each in observed.warnings if each.object_uid == pod.uid]
        for container in pod.containers:
            lines += [container.waiting_reason, container.waiting_message]
            if end := container.termination:
                lines += [f"{end.reason}, exit code {end.exit_code}", end.message]
        yield "\n".join(filter(None, lines)), pod


def _locate(finding: LogFinding, pod: Pod | None, observed: Observed) -> FailureFinding:
    """Ray's prefix of a line names the address of the pod that printed it."""
    if address := ADDRESS.search(finding.process):
        pod = next((each for each in observed.pods if each.ip == address[1]), pod)
    return FailureFinding(
        code=finding.code,
        severity=finding.severity,
        message=finding.message,
        pod=pod.name if pod else None,
        node=pod.node if pod else None,
        rank=finding.rank,
        evidence=finding.evidence,
        remedy=finding.remedy,
        source=finding.source,
    )
