"""Nodes that no machine stands behind, played by KWOK: they are Ready, and pods on them run at once and do nothing.

    with fake_nodes(cluster, racks(8, nodes=8, gpus=8)):
        ...

All of them have the taint `TAINT`, so that only pods that tolerate it land there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import processes
from cluster.go_programs import GO_FOLDER, Family, obtain
from cluster.handle import Cluster
from cluster.stages import stage

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
"""What KWOK does to nodes and pods, as it ships them."""

MARK = "kwok.x-k8s.io/node"
TAINT = {"key": MARK, "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": MARK, "operator": "Exists", "effect": "NoSchedule"}

ZONE = "topology.kubernetes.io/zone"
RACK = "topology.kubernetes.io/rack"


@dataclass(frozen=True)
class FakeNode:
    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, str]
    """Capacity and allocatable."""

    def manifest(self) -> dict[str, object]:
        resources = {"cpu": "128", "memory": "2Ti", "pods": "110", **self.resources}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {MARK: "fake", "kubernetes.io/hostname": self.name, **self.labels},
            },
            "spec": {"taints": [TAINT]},
            "status": {"capacity": resources, "allocatable": resources},
        }


def racks(count: int, *, nodes: int, gpus: int) -> list[FakeNode]:
    """`count` racks of `nodes` nodes with `gpus` NVIDIA GPUs each, the first half of the racks in another zone."""
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
    """The folder with the program and its stages; minutes at the first time."""
    return obtain(KWOK)


@contextmanager
def fake_nodes(cluster: Cluster, nodes: Sequence[FakeNode]) -> Iterator[None]:
    """The nodes, Ready; gone afterwards. Pods on them should be gone before, as they are with their namespace."""
    built = build()
    _remove(cluster)  # an interrupted run leaves some
    try:
        with stage(f"start {len(nodes)} fake nodes", estimate_s=10):
            _start(cluster, built)
            cluster.apply(*(node.manifest() for node in nodes))
            cluster.kubectl("wait", "node", "--selector", f"{MARK}=fake", "--for=condition=Ready", "--timeout=60s")
        yield
    finally:
        _remove(cluster)


def _start(cluster: Cluster, built: Path) -> None:
    layout = cluster.layout
    assert layout, "only the embedded cluster's own processes are known to end with it"
    stages = [f"--config={built}/stages/{name}" for name in STAGES]
    options = [f"--kubeconfig={layout.admin}", f"--manage-nodes-with-label-selector={MARK}=fake"]
    options += [f"--cidr={layout.fake_pods}", "--node-lease-duration-seconds=40"]
    processes.start(
        "kwok",
        [built / "kwok", *options, *stages],
        state=layout.state,
        log=layout.logs / "kwok.log",
        search_path="/usr/bin:/bin",
    )


def _remove(cluster: Cluster) -> None:
    """The nodes first: without KWOK they would be seen to fail before they go."""
    assert cluster.layout
    cluster.kubectl("delete", "nodes", "--selector", f"{MARK}=fake", "--timeout=120s")
    processes.kill(each.pid for each in processes.running(cluster.layout.state) if each.name == "kwok")
