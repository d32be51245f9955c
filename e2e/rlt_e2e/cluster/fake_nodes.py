"""Nodes simulated by KWOK: they are Ready, and pods on them become Running immediately without any process.

    with fake_nodes(cluster, build_racks(8, nodes=8, gpus=8)):
        ...

All have the taint `TAINT`, so that only pods that tolerate it are scheduled on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlt_e2e.cluster import processes
from rlt_e2e.cluster.go_programs import GO_FOLDER, Family, obtain
from rlt_e2e.cluster.handle import Cluster
from rlt_e2e.cluster.stages import stage

MODULE = "sigs.k8s.io/kwok"

KWOK = Family(
    name="kwok",
    title="KWOK",
    packages=(f"{MODULE}/cmd/kwok",),
    module=GO_FOLDER / "kwok",
    estimate_s=80,
    copies=((MODULE, "kustomize/stage", "stages"),),
)

STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)
"""KWOK's own stages: what it does to nodes and pods."""

LABEL = "kwok.x-k8s.io/node"
TAINT = {"key": LABEL, "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}

ZONE = "topology.kubernetes.io/zone"
RACK = "topology.kubernetes.io/rack"


@dataclass(frozen=True)
class FakeNode:
    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, str]
    """Capacity and allocatable."""

    def build_manifest(self) -> dict[str, object]:
        resources = {"cpu": "128", "memory": "2Ti", "pods": "110", **self.resources}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {LABEL: "fake", "kubernetes.io/hostname": self.name, **self.labels},
            },
            "spec": {"taints": [TAINT]},
            "status": {"capacity": resources, "allocatable": resources},
        }


def build_racks(count: int, *, nodes: int, gpus: int) -> list[FakeNode]:
    """Build `count` racks of `nodes` nodes with `gpus` NVIDIA GPUs each. The first half of the racks is in zone a."""
    return [
        FakeNode(
            f"rack-{rack}-{node}",
            {ZONE: "a" if rack < count // 2 else "b", RACK: f"rack-{rack}", "nvidia.com/gpu.present": "true"},
            {"nvidia.com/gpu": str(gpus)},
        )
        for rack in range(count)
        for node in range(nodes)
    ]


def build() -> Path:
    """Build the program and return the folder with it and its stages. The first build takes minutes."""
    return obtain(KWOK)


@contextmanager
def fake_nodes(cluster: Cluster, nodes: Sequence[FakeNode]) -> Iterator[None]:
    """Add the nodes, and remove them afterwards. Delete pods on them before, for example with their namespace."""
    built = build()
    _remove(cluster)  # an interrupted run leaves nodes
    try:
        with stage(f"start {len(nodes)} fake nodes", estimate_s=10):
            _start(cluster, built)
            cluster.apply(*(node.build_manifest() for node in nodes))
            cluster.kubectl("wait", "node", "--selector", f"{LABEL}=fake", "--for=condition=Ready", "--timeout=300s")
        yield
    finally:
        _remove(cluster)


def _start(cluster: Cluster, built: Path) -> None:
    layout = cluster.layout
    assert layout, "fake nodes need the embedded cluster, which ends the process of KWOK when it is removed"
    stages = [f"--config={built}/stages/{name}" for name in STAGES]
    options = [f"--kubeconfig={layout.admin}", f"--manage-nodes-with-label-selector={LABEL}=fake"]
    options += [f"--cidr={layout.fake_pods}", "--node-lease-duration-seconds=40"]
    processes.start(
        "kwok",
        [built / "kwok", *options, *stages],
        state=layout.state,
        log=layout.logs / "kwok.log",
        search_path="/usr/bin:/bin",
    )


def _remove(cluster: Cluster) -> None:
    """Remove the nodes, then KWOK: without KWOK the nodes would become NotReady before they are deleted."""
    assert cluster.layout
    cluster.kubectl("delete", "nodes", "--selector", f"{LABEL}=fake", "--timeout=300s")
    processes.kill(each.pid for each in processes.list_running(cluster.layout.state) if each.name == "kwok")
