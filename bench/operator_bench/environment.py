"""The control plane of a run, with simulated nodes, KubeRay, and the simulated Ray heads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from operator_bench.processes import CONTROL_PORT, Process, make_simulator, wait_for_ok
from rlt_e2e.cluster import Cluster, control_plane
from rlt_e2e.cluster.fake_nodes import FakeNode, fake_nodes
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.programs import obtain_built

CRDS = Path(__file__).parents[2] / "crds"
NODES = 10
HUGE = {"cpu": "1000000", "memory": "1000Ti", "pods": "100000"}
"""Resources of a node: no pod ever waits for one."""
KUBERAY_PORT = 9003


class Node(FakeNode):
    """A simulated node without a taint: all nodes are simulated."""

    def build_manifest(self) -> dict[str, object]:
        return {**super().build_manifest(), "spec": {}}


@contextmanager
def run_control_plane() -> Iterator[Cluster]:
    """etcd, the API server, the controller manager and the scheduler, with the CRDs of rlt and KubeRay."""
    with tempfile.TemporaryDirectory(prefix="rlt-bench-") as folder:
        cluster = Cluster.up(nodes=0, state=Path(folder, "state"))
        try:
            assert cluster.layout
            control_plane.start(cluster.layout, "kube-scheduler", search_path=str(obtain_built()))
            cluster.kubectl("apply", "--server-side", "-f", CRDS)
            cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
            yield cluster
        finally:
            cluster.down()


@contextmanager
def run_pods(cluster: Cluster) -> Iterator[Process]:
    """Nodes on which pods run at once, KubeRay's operator, and the simulated heads. Yields KubeRay's process."""
    assert cluster.layout
    nodes = [Node(f"node-{number}", {}, HUGE) for number in range(NODES)]
    kuberay = make_kuberay(cluster.layout)
    simulator = make_simulator(cluster.layout)
    with fake_nodes(cluster, nodes), running(kuberay, simulator):
        wait_for_ok(simulator, f"http://127.0.0.1:{CONTROL_PORT}/heads")
        wait_for_ok(kuberay, f"http://127.0.0.1:{KUBERAY_PORT}/readyz")
        yield kuberay


@contextmanager
def running(*processes: Process) -> Iterator[None]:
    """Start the processes, and end them."""
    try:
        for each in processes:
            each.start()
        yield
    finally:
        for each in processes:
            each.stop()


def make_kuberay(layout: Layout, options: Sequence[str] = ()) -> Process:
    """KubeRay's operator with its defaults."""
    command: list[str | Path] = [
        obtain_built() / "ray-operator",
        f"--health-probe-bind-address=127.0.0.1:{KUBERAY_PORT}",
        "--metrics-addr=0",
        "--enable-leader-election=false",
        *options,
    ]
    return Process("kuberay", command, layout, {"KUBECONFIG": str(layout.admin)})
