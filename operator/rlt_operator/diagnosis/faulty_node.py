"""Which node caused the failure of an attempt, with evidence. Pure. Without evidence the result is empty."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlt_api.status.job_status import PreflightCheck
from rlt_core.fabric.nodes import Node
from rlt_operator.observation import Pod

HARDWARE = re.compile(
    r"uncorrectable ECC error encountered|uncorrectable NVLink error detected"
    r"|GPU has fallen off the bus|\bNVRM: Xid \([^()]*\): (?:48|64|74|79|95)\b"
)
"""Messages about accelerator faults in a program's output.

* CUDA's and HIP's texts of cudaErrorECCUncorrectable, hipErrorECCNotCorrectable ("This usually means a hardware error":
  https://github.com/vllm-project/vllm/issues/5222, https://github.com/huggingface/trl/issues/4149) and
  cudaErrorNvlinkUncorrectable (https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html).
* The driver's line, as in https://github.com/NVIDIA/NVSentinel/issues/155, for a double bit error (48), a failed row
  remapping (64), NVLink (74), a GPU off the bus (79) and an uncontained memory error (95):
  https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Excludes 63 and 94, a successful row remapping
  and a contained memory error: the node remains usable.
"""
ADDRESS = re.compile(r"\bpid=\d+, ip=([0-9a-fA-F.:]+)")
"""The process that printed a line of Ray's output, or the traceback below it (ray/_private/worker.py,
ray/exceptions.py, Ray 2.60). Processes on the driver's pod have no ip."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")

NODE_REASONS = {"NodeLost", "NodeShutdown", "UnexpectedAdmissionError"}
"""Reasons of pods that their node ended or rejected: kubernetes pkg/util/node/node.go, pkg/kubelet/nodeshutdown, and
pkg/kubelet/lifecycle, where a device plugin could not allocate devices."""
SHUTDOWN = "Pod was terminated in response to imminent node shutdown"
"""The message of the reason Terminated (kubernetes pkg/kubelet/nodeshutdown)."""
NODE_DISRUPTIONS = {"DeletionByTaintManager", "DeletionByPodGC"}
"""Reasons of DisruptionTarget for pods evicted by a NoExecute taint, or bound to a deleted node:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions. Excludes
TerminationByKubelet, which the pod's memory use may cause, and preemption and eviction, which users request."""
IGNORED_TAINTS = {
    f"node.kubernetes.io/{name}" for name in ("unschedulable", *map("{}-pressure".format, ("memory", "disk", "pid")))
}
"""Taints of drained nodes, and of resource pressure that the pods themselves may cause."""
NODE_CHECKS = {"accelerators", "all-reduce", "gpu-health"}
"""Preflight checks that show a faulty node if they fail on one node only. Others check storage, image and settings."""
MAX_LINE_LENGTH = 200
"""Maximum number of characters in a quoted line of output."""


@dataclass(frozen=True)
class FaultyNode:
    """A node that caused a failure."""

    name: str
    evidence: str
    """A clause without a period."""


def find_faulty_node(
    pods: Sequence[Pod], nodes: Sequence[Node], log: str | None, checks: Sequence[PreflightCheck] = ()
) -> FaultyNode | None:
    """From the program's output, else from the preflight checks, the state of the attempt's `pods`, or of their nodes.

    `nodes` lists all nodes of the Kubernetes cluster, or is empty if they were not read.
    """
    return (
        _find_by_output(pods, log or "")
        or _find_by_checks(pods, checks)
        or _find_by_pods(pods)
        or _find_by_nodes(pods, nodes)
    )


def _find_by_output(pods: Sequence[Pod], log: str) -> FaultyNode | None:
    """From the first line with an accelerator fault that a known pod printed."""
    nodes = {pod.ip: pod.node for pod in pods if pod.ip and pod.node}
    lines = [COLOR.sub("", line) for line in log.splitlines()]
    for number, line in enumerate(lines):
        if HARDWARE.search(line) and (node := nodes.get(_find_address(lines, number) or "")):
            return FaultyNode(node, f'the program printed "{_truncate(line)}"')
    return None


def _find_address(lines: Sequence[str], number: int) -> str | None:
    """The address in the line, or in the first line of the traceback that it ends. The lines between are indented."""
    if found := ADDRESS.search(lines[number]):
        return found[1]
    above = next((line for line in reversed(lines[:number]) if not line.startswith("  ")), "")
    head = ADDRESS.search(above) if "ray::" in above else None
    return head[1] if head else None


def _find_by_checks(pods: Sequence[Pod], checks: Sequence[PreflightCheck]) -> FaultyNode | None:
    """The only node on which a check failed, if several nodes have workers."""
    if len({pod.node for pod in pods if pod.node and not pod.is_head}) < 2:
        return None
    for check in checks:
        if check.result == "failed" and check.name in NODE_CHECKS and len(check.nodes) == 1:
            return FaultyNode(
                check.nodes[0], f"check {check.name} failed on this node only: {_truncate(check.message)}"
            )
    return None


def _find_by_pods(pods: Sequence[Pod]) -> FaultyNode | None:
    for pod in pods:
        shut_down = pod.reason == "Terminated" and (pod.message or "").startswith(SHUTDOWN)
        if pod.node and (pod.reason in NODE_REASONS or shut_down):
            return FaultyNode(pod.node, f"pod {pod.name} ended: {pod.reason}: {_truncate(pod.message or 'no message')}")
        if pod.node and pod.disruption in NODE_DISRUPTIONS:
            return FaultyNode(pod.node, f"pod {pod.name} was disrupted: {pod.disruption}")
    return None


def _find_by_nodes(pods: Sequence[Pod], nodes: Sequence[Node]) -> FaultyNode | None:
    known = {node.name: node for node in nodes}
    for pod in pods if nodes else ():
        if pod.node and (state := _describe_state(known.get(pod.node))):
            return FaultyNode(pod.node, f"it is {state}")
    return None


def _describe_state(node: Node | None) -> str | None:
    if node is None:
        return "deleted"
    if not node.ready:
        return "not Ready"
    taints = tuple(taint for taint in node.taints if taint.key not in IGNORED_TAINTS)
    reason = replace(node, taints=taints).unhealthy_reason
    return f"marked as unhealthy: {reason}" if reason else None


def _truncate(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"
