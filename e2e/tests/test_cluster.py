"""The embedded cluster: nodes, network, start and removal."""

import json
import os
import re
import select
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rlt_e2e.cluster import Cluster, cgroups, images, lifecycle, machine, network, processes
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.node import find_holder

SECOND = {"first_port": 19440, "subnet": 101}
CONTROL_PLANE = {"first_port": 18440}

embedded = pytest.mark.skipif(
    "KUBECONFIG" in os.environ, reason="needs the nodes of the embedded cluster, and KUBECONFIG is set"
)


@pytest.fixture(scope="module")
def cluster(bare_cluster: Cluster) -> Cluster:
    """The cluster without the operator."""
    return bare_cluster


def trainer_pod(name: str, command: list[str], node: str | None = None) -> dict[str, object]:
    container = {
        "name": "main",
        "image": images.TRAINER,
        "command": command,
        "volumeMounts": [{"name": "memory", "mountPath": "/dev/shm"}],
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000}
    volumes = [{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}]
    spec = {
        "nodeName": node,
        "containers": [container],
        "securityContext": security,
        "volumes": volumes,
        "terminationGracePeriodSeconds": 1,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def run_pod(cluster: Cluster, namespace: str, pod: dict[str, object]) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(pod))
    name = json.loads(json.dumps(pod))["metadata"]["name"]
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=300s")


@embedded
@pytest.mark.cluster
def test_pods_on_two_nodes_reach_each_other_by_service_name(cluster: Cluster, namespace: str) -> None:
    for name, node in (("one", "node-1"), ("two", "node-2")):
        run_pod(cluster, namespace, trainer_pod(name, ["python", "-m", "http.server", "8000"], node))
        cluster.kubectl("-n", namespace, "expose", "pod", name, "--name", f"{name}-service", "--port=8000")
    request = (
        "import sys, time, urllib.request\n"
        "for _ in range(50):\n"
        "    try: print(urllib.request.urlopen(f'http://{sys.argv[1]}:8000', timeout=5).status); break\n"
        "    except OSError: time.sleep(0.2)\n"
    )
    for caller, called in (("one", "two"), ("two", "one"), ("one", "one")):
        python = ["exec", caller, "--", "python", "-c", request, f"{called}-service"]
        assert cluster.kubectl("-n", namespace, *python).strip() == "200"
    assert "GET / HTTP" in cluster.kubectl("-n", namespace, "logs", "two")


@embedded
@pytest.mark.cluster
def test_trainer_pods_mount_the_environment_of_the_machine_read_only(cluster: Cluster, namespace: str) -> None:
    run_pod(cluster, namespace, trainer_pod("one", ["sleep", "600"]))
    inside = ["-n", namespace, "exec", "one", "--", "python", "-c"]
    found = cluster.kubectl(*inside, "import os, rlt_trainer, ray; print(os.getuid(), rlt_trainer.__file__)").split()
    assert found[0] == "1000"
    assert Path(found[1]).parts[:-2] == Path(__file__).parents[2].joinpath("trainer").parts
    with pytest.raises(ValueError, match="Read-only file system"):
        cluster.kubectl(*inside, f"open({str(Path(found[1]).parent / 'x')!r}, 'w')")


@embedded
@pytest.mark.cluster
def test_extended_resource_is_allocatable_until_it_is_removed(cluster: Cluster) -> None:
    def allocatable() -> object:
        node = json.loads(cluster.kubectl("get", "node", "node-1", "-o", "json"))
        return node["status"]["allocatable"].get("example.com/gpu")

    cluster.set_extended_resource("node-1", "example.com/gpu", 8)
    assert allocatable() == "8"
    cluster.set_extended_resource("node-1", "example.com/gpu", 0)
    assert allocatable() is None


@embedded
@pytest.mark.cluster
def test_lost_node_becomes_not_ready_and_recovers(cluster: Cluster) -> None:
    cluster.lose_node("node-2")
    try:
        cluster.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=300s")
    finally:
        cluster.restore_node("node-2")
    cluster.kubectl("wait", "--for=condition=Ready", "node/node-2", "--timeout=300s")


@embedded
@pytest.mark.cluster
def test_deleting_a_missing_link_succeeds_and_an_undeletable_link_fails(cluster: Cluster) -> None:
    """The kernel removes a link with the namespace of its node, possibly while the cluster is removed."""
    network.delete_link("rlt-no-link")
    with pytest.raises(ValueError, match="ip link delete lo"):
        network.delete_link("lo")


@embedded
@pytest.mark.cluster
def test_both_nodes_share_the_folder_of_a_volume(cluster: Cluster, namespace: str) -> None:
    folder = cluster.shared_volume(namespace, "shared")
    for name, node in (("one", "node-1"), ("two", "node-2")):
        pod = json.loads(json.dumps(trainer_pod(name, ["sh", "-c", f"touch /shared/{name}; sleep 600"], node)))
        pod["spec"]["volumes"].append({"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}})
        pod["spec"]["containers"][0]["volumeMounts"].append({"name": "shared", "mountPath": "/shared"})
        run_pod(cluster, namespace, pod)
    listed = cluster.kubectl("-n", namespace, "exec", "two", "--", "ls", "/shared").split()
    assert listed == sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    cluster.kubectl("-n", namespace, "delete", "pod", "one", "two", "--now")
    cluster.kubectl("-n", namespace, "delete", "pvc", "shared")
    cluster.kubectl("delete", "pv", f"{namespace}-shared")


@embedded
@pytest.mark.cluster
def test_second_cluster_is_removed_completely(cluster: Cluster, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cluster", 1, **SECOND)
    before = read_sysctls()
    try:
        second = Cluster.up(nodes=1, state=layout.state, **SECOND)
        run_pod(second, "default", trainer_pod("one", ["sleep", "600"]))
        assert second.nodes() == ["node-1"]
        during = find_traces(layout)
        held = find_namespaces([find_holder(layout, layout.node("node-1")), *cgroups.list_pids("/rlt101-node-1")])
        members = open_members(held - find_namespaces([os.getpid()]))
    finally:
        lifecycle.down(layout.state)
    assert [name for name, found in during.items() if not found] == ["mounts"], "mounts are in the nodes' namespaces"
    assert len(held) >= 4, "the node and its pod have their own namespaces"
    await_end(members)
    await_removal(layout)
    assert read_sysctls() == before
    assert not layout.state.exists()
    assert cluster.nodes() == ["node-1", "node-2"]


@embedded
@pytest.mark.cluster
def test_interrupted_start_is_removed_completely(cluster: Cluster, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cluster", 1, **SECOND)
    before = read_sysctls()
    state = ["--state", str(layout.state)]
    command = [sys.executable, "-m", "rlt_e2e.cluster", "up", *state, "--nodes=1", "--first-port=19440", "--subnet=101"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    try:
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=accept_interrupts
        ) as starting:
            assert starting.stdout
            assert any("start 1 nodes" in line for line in starting.stdout)
            starting.send_signal(signal.SIGINT)
            starting.communicate()
        assert starting.returncode == 130
    finally:
        subprocess.run([sys.executable, "-m", "rlt_e2e.cluster", "down", *state], env=environment, check=True)
    await_removal(layout)
    assert read_sysctls() == before


def accept_interrupts() -> None:
    """Reset SIGINT as in a terminal: a shell ignores it in background jobs, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    state = tmp_path_factory.mktemp("control-plane") / "cluster"
    yield Cluster.up(nodes=0, state=state, **CONTROL_PLANE)
    lifecycle.down(state)


@pytest.mark.apiserver
def test_anonymous_request_is_rejected(control_plane: Cluster) -> None:
    assert control_plane.layout
    context = ssl.create_default_context(cafile=str(control_plane.layout.certificates / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{control_plane.layout.server}/version", context=context)


@pytest.mark.apiserver
def test_control_plane_without_nodes_has_the_crds_of_kuberay(control_plane: Cluster) -> None:
    assert "rayclusters.ray.io" in control_plane.kubectl("get", "crds", "-o", "name")
    assert control_plane.nodes() == []


@pytest.mark.apiserver
def test_healthy_cluster_is_reused(control_plane: Cluster) -> None:
    assert control_plane.layout
    before = processes.list_running(control_plane.layout.state)
    assert Cluster.up(nodes=0, state=control_plane.layout.state, **CONTROL_PLANE) == control_plane
    assert processes.list_running(control_plane.layout.state) == before


@pytest.mark.apiserver
def test_incomplete_cluster_is_recreated(control_plane: Cluster) -> None:
    assert control_plane.layout
    running = processes.list_running(control_plane.layout.state)
    processes.kill(process.pid for process in running if process.name == "etcd")
    Cluster.up(nodes=0, state=control_plane.layout.state, **CONTROL_PLANE)
    assert lifecycle.is_healthy(control_plane.layout.state)


@pytest.mark.apiserver
def test_running_cluster_with_other_nodes_is_not_replaced(control_plane: Cluster) -> None:
    assert control_plane.layout
    with pytest.raises(ValueError, match=r"nodes=0.* is already running"):
        Cluster.up(nodes=3, state=control_plane.layout.state, **CONTROL_PLANE)


@pytest.mark.apiserver
def test_nodes_of_another_cluster_cannot_be_disconnected(control_plane: Cluster) -> None:
    with pytest.raises(ValueError, match="unset KUBECONFIG"):
        Cluster(control_plane.kubeconfig, None).lose_node("node-1")


def find_namespaces(pids: Iterable[int]) -> set[str]:
    """Find the network and mount namespaces of processes. Ignores processes that have ended."""
    found = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found |= {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt")}
    return found


def open_members(namespaces: set[str]) -> list[int]:
    """Open a pidfd of each process in `namespaces`. The kernel reuses the numbers of processes and namespaces."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if find_namespaces([int(folder.name)]) & namespaces:
                found.append(os.pidfd_open(int(folder.name)))
    assert found
    return found


def await_end(pidfds: list[int]) -> None:
    """Wait until all processes have ended, and close `pidfds`."""
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(30_000), Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        os.close(pidfd)


def await_removal(layout: Layout) -> None:
    """Wait until the machine has no traces of the cluster."""
    deadline = time.monotonic() + 30
    while left := [name for name, found in find_traces(layout).items() if found]:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


def find_traces(layout: Layout) -> dict[str, object]:
    """Find the processes, mounts, network and control groups of a cluster on the machine. Other clusters may run."""

    def lines(*command: str) -> list[str]:
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [line for line in printed.splitlines() if re.search(rf"\b{layout.bridge}\b", line)]

    groups = [f"rlt{layout.subnet}-node-{number}" for number in range(1, 3)]
    folders = [root / group for root, _ in cgroups.list_hierarchies() for group in groups]
    return {
        "processes": processes.list_running(layout.state),
        "containers": [pid for group in groups for pid in cgroups.list_pids(f"/{group}")],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(layout.state) in line],
        "links": [name for name in os.listdir("/sys/class/net") if re.match(rf"{layout.bridge}\b", name)],
        "routes": lines("ip", "route"),
        "rules": lines("nft", "--stateless", "list", "ruleset"),
        "groups": [folder for folder in folders if folder.exists()],
    }


def read_sysctls() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in machine.SYSCTLS}
