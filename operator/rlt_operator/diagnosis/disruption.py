"""Whether Kubernetes ended a pod for a cause outside of the job: a disruption. Pure.

https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlt_core.fabric.candidates import tolerates
from rlt_core.fabric.nodes import Node, Taint
from rlt_operator.observation import Pod

POD_REASONS = {"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "UnexpectedAdmissionError"}
"""Reasons of pods that the kubelet ended or rejected (kubernetes pkg/kubelet/{eviction,preemption,nodeshutdown},
pkg/util/node)."""
SHUTDOWN = ("Terminated", "Pod was terminated in response to imminent node shutdown")
"""Reason and start of the message after a graceful node shutdown (kubernetes pkg/kubelet/nodeshutdown)."""
OWN_LIMIT = re.compile(r"exceed(?:s|ed) (?:its local ephemeral|the (?:total )?limit)")
"""The kubelet's messages for a pod that used more than its own limits (kubernetes pkg/kubelet/eviction/helpers.go). It
is not a disruption: the next attempt would do the same."""
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint of a cordoned node (https://kubernetes.io/docs/reference/labels-annotations-taints/)."""
REMOVAL_TAINTS = {
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
}
"""Taints of nodes that will be removed: the cluster autoscaler, Karpenter and node termination handlers."""
NODE_TAINTS = {
    *REMOVAL_TAINTS,
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/unreachable",
}
"""Taints of nodes that are removed, shut down or lost
(https://kubernetes.io/docs/reference/labels-annotations-taints/)."""
LOST_NODE = re.compile(
    r"its node has died|actor's node was terminated unexpectedly|health check failed|lost its connection to pod"
)
"""Ray's messages about a node that it lost (src/ray/gcs, Ray 2.60): the raylet, the pod or the machine. The last one is
the trainer's (rlt_trainer/cluster/connections.py)."""
DELETED = "PodDeleted"
"""The reason of a pod that was deleted while it ran, as by `kubectl drain --disable-eviction`."""


@dataclass(frozen=True)
class FoundDisruption:
    """A disruption of one pod."""

    reason: str
    """The reason of the condition DisruptionTarget, the kubelet's reason, PodDeleted, NodeCordoned, or the taint of the
    node."""
    pod: str
    node: str | None
    message: str | None = None
    """The kubelet's message."""


def find_disruption(pods: Sequence[Pod], nodes: Sequence[Node] = ()) -> FoundDisruption | None:
    """The first disruption among the pods of a RayCluster that is neither deleted nor suspended.

    `nodes` lists all nodes of the Kubernetes cluster, or is empty if they were not read. A node alone is evidence only
    after the program has ended: a cordoned node may run its pods to their end.
    """
    found = (_find_by_pod(pod) for pod in pods)
    return next((each for each in found if each), None) or _find_by_nodes(pods, nodes)


def find_drain(pods: Sequence[Pod], nodes: Sequence[Node]) -> FoundDisruption | None:
    """The first ready pod whose node is drained or will be removed.

    A pod that tolerates the taint stays: the scheduler may put its successor on the same node. A pod that is not ready
    can be evicted.
    """
    taints = {node.name: list_drain_taints(node) for node in nodes}
    for pod in pods:
        for taint in taints.get(pod.node or "", ()) if pod.ready and not pod.deleting else ():
            if not any(tolerates(each, taint) for each in pod.tolerations):
                return FoundDisruption("NodeCordoned" if taint == CORDON else taint.key, pod.name, pod.node)
    return None


def list_drain_taints(node: Node) -> list[Taint]:
    """The taints of a node that is drained or will be removed; empty for another node."""
    announced = [taint for taint in node.taints if taint.key in REMOVAL_TAINTS and taint.effect != "PreferNoSchedule"]
    return [CORDON, *announced] if node.cordoned else announced


def _find_by_pod(pod: Pod) -> FoundDisruption | None:
    message = pod.message or ""
    if OWN_LIMIT.search(message):
        return None
    ends = pod.deleting or pod.phase == "Failed"
    shut_down = pod.reason == SHUTDOWN[0] and message.startswith(SHUTDOWN[1])
    if pod.disruption and ends:  # Kubernetes resets the condition of a pod that is not deleted after all
        return FoundDisruption(pod.disruption, pod.name, pod.node, pod.message)
    if pod.reason and (pod.reason in POD_REASONS or shut_down):
        return FoundDisruption(pod.reason, pod.name, pod.node, pod.message)
    ended = any(each.termination and not each.running and not each.is_init for each in pod.containers)
    if pod.deleting and pod.phase == "Running" and not ended:  # KubeRay deletes pods whose container has ended
        return FoundDisruption(DELETED, pod.name, pod.node)
    return None


def _find_by_nodes(pods: Sequence[Pod], nodes: Sequence[Node]) -> FoundDisruption | None:
    known = {node.name: node for node in nodes}
    for pod in pods if nodes else ():
        if pod.node is None:
            continue
        node = known.get(pod.node)
        if node is None:
            return FoundDisruption("NodeDeleted", pod.name, pod.node)
        if taint := next((taint.key for taint in node.taints if taint.key in NODE_TAINTS), None):
            return FoundDisruption(taint, pod.name, pod.node)
        if not node.ready:
            return FoundDisruption("NodeNotReady", pod.name, pod.node)
    return None
