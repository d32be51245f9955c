"""Which node was at fault when an attempt failed, and what shows it. Pure; without evidence no node is blamed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlt_api.status import PreflightCheck
from rlt_core.fabric.candidates import unhealthy_reason
from rlt_core.fabric.nodes import Node
from rlt_operator.observation import Pod

HARDWARE = re.compile(
    r"uncorrectable ECC error encountered|uncorrectable NVLink error detected"
    r"|GPU has fallen off the bus|\bNVRM: Xid \([^)]*\): (?:48|64|74|79|95)\b"
)
"""What accelerators say of themselves in a program's output.

* CUDA's and HIP's texts of cudaErrorECCUncorrectable, hipErrorECCNotCorrectable ("This usually means a hardware error":
  https://github.com/vllm-project/vllm/issues/5222, https://github.com/huggingface/trl/issues/4149) and
  cudaErrorNvlinkUncorrectable (https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html).
* The driver's line, as in https://github.com/NVIDIA/NVSentinel/issues/155, of a double bit error (48), a row that could
  not be remapped (64), NVLink (74), a GPU off the bus (79) and memory damage that was not contained (95):
  https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Not of 63 and 94, which tell of a row that was
  remapped and of damage that was contained: the node can go on.
"""
SPEAKER = re.compile(r"\bpid=\d+, ip=([0-9a-fA-F.:]+)")
"""The process that a line of Ray's output, or a traceback below it, comes from (ray/_private/worker.py,
ray/exceptions.py, Ray 2.60). Processes on the driver's own pod have no ip."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")

NODE_REASONS = {"NodeLost", "NodeShutdown", "UnexpectedAdmissionError"}
"""Reasons of pods that their node ended or did not take: kubernetes pkg/util/node/node.go, pkg/kubelet/nodeshutdown,
and pkg/kubelet/lifecycle, where a device plugin could not give its devices."""
SHUTDOWN = "Pod was terminated in response to imminent node shutdown"
"""The message of the reason Terminated (kubernetes pkg/kubelet/nodeshutdown)."""
NODE_DISRUPTIONS = {"DeletionByTaintManager", "DeletionByPodGC"}
"""Pods taken from a node by a NoExecute taint, or left on none: reasons of DisruptionTarget,
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions. (TerminationByKubelet may be
the pod's own hunger, and preemption and eviction are somebody's wish.)"""
NOT_ITS_FAULT = {
    f"node.kubernetes.io/{word}" for word in ("unschedulable", *map("{}-pressure".format, ("memory", "disk", "pid")))
}
"""Taints of nodes that somebody drains, or that the pods themselves have filled."""
NODE_CHECKS = {"accelerators", "all-reduce"}
"""Checks before the training that fail by their node where they fail on one alone. (The others are of the job's
storage, image and settings.)"""
MAX_LINE_LENGTH = 200
"""Characters of a line of output that are repeated."""


@dataclass(frozen=True)
class Fault:
    """A node that was at fault."""

    node: str
    evidence: str
    """What shows it, as a clause."""


def node_at_fault(
    pods: Sequence[Pod], nodes: Sequence[Node], log: str | None, checks: Sequence[PreflightCheck] = ()
) -> Fault | None:
    """By the program's output, else the checks before it, what became of the attempt's `pods`, their nodes' state.

    `nodes` are all that there are; none were looked at if it is empty.
    """
    return _by_output(pods, log or "") or _by_checks(pods, checks) or _by_pods(pods) or _by_nodes(pods, nodes)


def _by_output(pods: Sequence[Pod], log: str) -> Fault | None:
    """The first line in which an accelerator blames itself on a pod that is known."""
    at = {pod.ip: pod.node for pod in pods if pod.ip and pod.node}
    lines = [COLOR.sub("", line) for line in log.splitlines()]
    for number, line in enumerate(lines):
        if HARDWARE.search(line) and (node := at.get(_speaker(lines, number) or "")):
            return Fault(node, f'the program said "{_shown(line)}"')
    return None


def _speaker(lines: Sequence[str], number: int) -> str | None:
    """The address in the line, or in the head of the traceback that it ends: the lines between are indented."""
    if own := SPEAKER.search(lines[number]):
        return own[1]
    above = next((line for line in reversed(lines[:number]) if not line.startswith("  ")), "")
    head = SPEAKER.search(above) if "ray::" in above else None
    return head[1] if head else None


def _by_checks(pods: Sequence[Pod], checks: Sequence[PreflightCheck]) -> Fault | None:
    """The node on which a check failed alone, of several that have workers."""
    if len({pod.node for pod in pods if pod.node and not pod.is_head}) < 2:
        return None
    for check in checks:
        if check.result == "failed" and check.name in NODE_CHECKS and len(check.nodes) == 1:
            return Fault(check.nodes[0], f"the check {check.name} failed there alone: {_shown(check.message)}")
    return None


def _by_pods(pods: Sequence[Pod]) -> Fault | None:
    for pod in pods:
        shut_down = pod.reason == "Terminated" and (pod.message or "").startswith(SHUTDOWN)
        if pod.node and (pod.reason in NODE_REASONS or shut_down):
            return Fault(pod.node, f"pod {pod.name} ended: {pod.reason}: {_shown(pod.message or 'no message')}")
        if pod.node and pod.disrupted in NODE_DISRUPTIONS:
            return Fault(pod.node, f"pod {pod.name} was taken away: {pod.disrupted}")
    return None


def _by_nodes(pods: Sequence[Pod], nodes: Sequence[Node]) -> Fault | None:
    known = {node.name: node for node in nodes}
    for pod in pods if nodes else ():
        if pod.node and (state := _state(known.get(pod.node))):
            return Fault(pod.node, f"it is {state}")
    return None


def _state(node: Node | None) -> str | None:
    if node is None:
        return "gone"
    if not node.ready:
        return "not Ready"
    own = tuple(taint for taint in node.taints if taint.key not in NOT_ITS_FAULT)
    ill = unhealthy_reason(replace(node, taints=own))
    return f"marked ill: {ill}" if ill else None


def _shown(line: str) -> str:
    line = line.strip()
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"
