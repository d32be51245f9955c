"""find_faulty_node(): real log lines, pod states and node states, with and without evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import observed as o
import pytest

from rlt_api.status.job_status import PreflightCheck
from rlt_core.fabric.nodes import Node, Taint
from rlt_operator.diagnosis.faulty_node import FaultyNode, find_faulty_node
from rlt_operator.manifests import parse_pod
from rlt_operator.observation import Pod

WELL = {"Ready": "True"}
PODS = tuple(replace(pod, node=f"node-{number}", ip=f"10.0.0.{number}") for number, pod in enumerate(o.pods()))
NODES = tuple(Node(f"node-{number}", conditions=WELL) for number in range(4))

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NVLINK = "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution"
XID = "NVRM: Xid (PCI:0000:44:00): {}, pid='<unknown>', name=<unknown>, {}"


def faulty_node(*, pods: tuple[Pod, ...] = PODS, nodes: tuple[Node, ...] = NODES, log: str = "") -> str | None:
    fault = find_faulty_node(pods, nodes, log)
    return fault.name if fault else None


def with_node(number: int, **changes: object) -> tuple[Node, ...]:
    return tuple(replace(node, **changes) if node.name == f"node-{number}" else node for node in NODES)  # type: ignore[arg-type]


def with_pod(number: int, **changes: object) -> tuple[Pod, ...]:
    return tuple(replace(pod, **changes) if pod.node == f"node-{number}" else pod for pod in PODS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        ECC,
        NVLINK,
        "RuntimeError: HIP error: uncorrectable ECC error encountered",
        XID.format(79, "GPU has fallen off the bus."),
        XID.format(48, "An uncorrectable double bit error (DBE) has been detected on GPU"),
        XID.format(95, "Uncontained: LTC TAG (0x4,0x0)."),
    ],
)
def test_a_fault_in_a_workers_line_selects_its_node(message: str) -> None:
    log = f"step:3 - reward:1\n\x1b[36m(Rank pid=214, ip=10.0.0.2)\x1b[0m {message}\nsomething else\n"
    assert find_faulty_node(PODS, NODES, log) == FaultyNode(
        "node-2", f'the program printed "(Rank pid=214, ip=10.0.0.2) {message}"'
    )


def test_a_fault_in_a_traceback_selects_its_node() -> None:
    log = (
        "ray.exceptions.RayTaskError(AcceleratorError): \x1b[36mray::Rank.update()\x1b[39m "
        "(pid=214, ip=10.0.0.1, actor_id=0a, repr=<rlt_trainer.workers.train_worker.Rank object at 0x7f>)\n"
        '  File "/opt/rlt/rlt_trainer/workers/train_worker.py", line 90, in update\n'
        "    loss.backward()\n"
        f"{ECC}\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    )
    assert faulty_node(log=log) == "node-1"


@pytest.mark.parametrize(
    "log",
    [
        "",
        f"{ECC}\n",
        f"(Rank pid=214, ip=10.9.9.9) {ECC}\n",
        f"(Rank pid=214, ip=10.0.0.2) step 3 is done\n{ECC}\nan end\n",
        "(Rank pid=214, ip=10.0.0.2) RuntimeError: CUDA error: an illegal memory access was encountered\n",
        "(Rank pid=214, ip=10.0.0.2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        f"(Rank pid=214, ip=10.0.0.2) {XID.format(13, 'Graphics Exception')}\n",
        f"(Rank pid=214, ip=10.0.0.2) {XID.format(94, 'Contained: SM (0x1).')}\n",
    ],
)
def test_without_evidence_no_node_is_selected(log: str) -> None:
    assert faulty_node(log=log) is None


def check(name: str, *nodes: str, result: Any = "failed") -> PreflightCheck:
    return PreflightCheck(name=name, result=result, nodes=list(nodes), message="got a wrong sum.")


@pytest.mark.parametrize(
    ("found", "node"),
    [
        (check("all-reduce", "node-2"), "node-2"),
        (check("accelerators", "node-1"), "node-1"),
        (check("all-reduce", "node-1", "node-2"), None),
        (check("all-reduce", "node-1", result="warned"), None),
        (check("all-reduce"), None),
        (check("files", "node-1"), None),
    ],
)
def test_a_check_that_failed_on_one_node_only_selects_it(found: PreflightCheck, node: str | None) -> None:
    fault = find_faulty_node(PODS, NODES, None, [check("shared-memory", "node-0"), found])
    assert (fault.name if fault else None) == node
    assert find_faulty_node(PODS[:2], NODES, None, [found]) is None  # no other node has a worker


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "NodeLost", "message": "Node node-1 which was running pod is unresponsive"},
        {"reason": "NodeShutdown", "message": "Pod was rejected as the node is shutting down."},
        {"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
        {"reason": "UnexpectedAdmissionError", "message": "Allocate failed due to no healthy devices present"},
        {"disruption": "DeletionByTaintManager", "deleting": True},
        {"disruption": "DeletionByPodGC", "deleting": True},
    ],
)
def test_a_pod_that_its_node_ended_selects_it(changes: dict[str, object]) -> None:
    assert faulty_node(pods=with_pod(1, **changes)) == "node-1"


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "Evicted", "message": "The node was low on resource: memory."},
        {"disruption": "PreemptionByScheduler"},
        {"disruption": "EvictionByEvictionAPI"},
        {"reason": "NodeLost", "node": None},
    ],
)
def test_evicted_and_preempted_pods_select_no_node(changes: dict[str, object]) -> None:
    assert faulty_node(pods=with_pod(1, **changes)) is None


@pytest.mark.parametrize(
    ("nodes", "state"),
    [
        (with_node(1, conditions={"Ready": "Unknown"}), "it is not Ready"),
        (tuple(node for node in NODES if node.name != "node-1"), "it is deleted"),
        (
            with_node(1, conditions={**WELL, "AcceleratedHardwareReady": "False"}),
            "it is marked as unhealthy: condition AcceleratedHardwareReady=False",
        ),
    ],
)
def test_an_unhealthy_node_is_selected(nodes: tuple[Node, ...], state: str) -> None:
    assert find_faulty_node(PODS, nodes, None) == FaultyNode("node-1", state)


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        with_node(3, conditions={"Ready": "False"}),
        with_node(1, cordoned=True, taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),)),
        with_node(1, taints=(Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"),)),
    ],
)
def test_unread_foreign_and_drained_nodes_are_not_selected(nodes: tuple[Node, ...]) -> None:
    assert faulty_node(nodes=nodes) is None


def test_parse_pod_reads_node_and_disruption() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    pod = parse_pod(
        {
            "metadata": {"name": "sum-head-a", "uid": "1"},
            "spec": {"nodeName": "node-1"},
            "status": {"podIP": "10.0.0.1", "reason": "NodeLost", "conditions": [disrupted]},
        }
    )
    assert (pod.node, pod.ip, pod.reason, pod.disruption) == (
        "node-1",
        "10.0.0.1",
        "NodeLost",
        "DeletionByTaintManager",
    )
