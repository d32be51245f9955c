"""Known failures in what is observed of an attempt: the output of the program, the ends of its pods, events, and the
conditions of their nodes. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

from rlt_api.findings.result_cache import ResultCache
from rlt_api.status.job_status import FailureFinding
from rlt_core.knowledge.diagnosis import LogFinding, diagnose_logs
from rlt_operator.diagnosis.faulty_node import ADDRESS
from rlt_operator.diagnosis.pods import IMAGE_REASONS
from rlt_operator.observation import Observed, Pod, WarningEvent

MAX_FINDINGS = 8
"""Maximum number of findings in the status."""

RDMA = ("infiniband", "roce")
"""Fabrics that NCCL uses by its own transport NET/IB."""
_known = ResultCache[list[LogFinding]](64)


@dataclass(frozen=True)
class Evidence:
    """A text, and the pod that it is about."""

    text: str
    pod: Pod | None


def find_failures(observed: Observed, message: str = "") -> list[FailureFinding]:
    """The known failures of the attempt, the best explanation first.

    Wrappers, which report that another process failed, count only without any other finding. `message`: the operator's
    own, if it is evidence as well.
    """
    about = next((pod for pod in observed.cluster_pods if pod.name in message), None)
    sources = [*_list_evidence(observed), Evidence(message, about), *_list_node_evidence(observed)]
    found = _diagnose(tuple(each.text for each in sources), expects_rdma=_expects_rdma(observed))
    found = [each for each in found if each.severity != "wrapper"] or found
    return [_locate(each, sources[each.log], observed) for each in found[:MAX_FINDINGS]]


def find_node_problems(observed: Observed) -> list[FailureFinding]:
    """The known problems of the job's nodes."""
    sources = list(_list_node_evidence(observed))
    return [_locate(each, sources[each.log], observed) for each in _diagnose(tuple(each.text for each in sources))]


def _diagnose(texts: tuple[str, ...], *, expects_rdma: bool = False) -> list[LogFinding]:
    """Cached: an attempt that waits for its restart is planned again and again."""
    logs = (io.BytesIO(text.encode("utf-8", "replace")) for text in texts)
    return _known.get((*texts, str(expects_rdma)), lambda: diagnose_logs(logs, expects_rdma=expects_rdma, failed=True))


def _expects_rdma(observed: Observed) -> bool:
    """Whether NCCL finds InfiniBand or RoCE on the job's nodes."""
    network = observed.job.status.network if observed.job.status else None
    return network is not None and network.fabric.removeprefix("mnnvl+") in RDMA


def _list_node_evidence(observed: Observed) -> Iterator[Evidence]:
    """The conditions of nodes that show a problem."""
    for node in observed.pod_nodes:
        if node.problems:
            pod = next((pod for pod in observed.cluster_pods if pod.node == node.name), None)
            yield Evidence("\n".join(node.problems), pod)


def _list_evidence(observed: Observed) -> Iterator[Evidence]:
    """The program's output, the states and events of each pod, and Ray's own logs."""
    pods = observed.cluster_pods
    head = next((pod for pod in pods if pod.is_head), None)
    if observed.ray and observed.ray.job:
        yield Evidence(observed.ray.log or observed.ray.job.message, head)
    if step := observed.ray_step:
        yield Evidence(step.log or step.job.message, head)
    attempt = observed.attempt
    if attempt and attempt.stacks and attempt.stacks.result:
        yield Evidence(attempt.stacks.result, head)
    for pod in pods:
        lines = [pod.reason, pod.message, pod.unschedulable]
        for container in pod.containers:
            lines.append(": ".join(filter(None, [container.waiting_reason, container.waiting_message])))
        lines += [each.message for each in observed.warnings if each.object_uid == pod.uid and _applies(each, pod)]
        for container in pod.containers:
            if end := container.termination:
                lines += [f"{end.reason}, exit code {end.exit_code}", end.message]
        yield Evidence("\n".join(filter(None, lines)), pod)
    for text in observed.ray.ray_logs if observed.ray else ():
        yield Evidence(text, head)


def _applies(event: WarningEvent, pod: Pod) -> bool:
    """Whether the event is evidence.

    An event of the scheduler is not once the pod has a node. The kubelet's "Error: ErrImagePull" repeats the reason of
    the container, without the image.
    """
    if event.reason == "FailedScheduling":
        return pod.node is None
    return event.message.removeprefix("Error: ") not in IMAGE_REASONS


def _locate(finding: LogFinding, source: Evidence, observed: Observed) -> FailureFinding:
    """Ray's prefix of a line names the address of the pod that printed it."""
    pod = source.pod
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
