"""The embedded cluster itself: nodes, network, what comes up and what is left when it is gone."""

import json
import os
import re
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

from cluster import Cluster, cgroups, images, lifecycle, machine, network, processes
from cluster.layout import Layout
from cluster.node import holder

BESIDE = {"first_port": 19440, "subnet": 101}
ALONE = {"first_port": 18440}

embedded = pytest.mark.skipif("KUBECONFIG" in os.environ, reason="KUBECONFIG names a cluster whose nodes are not ours")


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
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


@embedded
@pytest.mark.cluster
def test_pods_on_two_nodes_reach_each_other_by_service_name(cluster: Cluster, namespace: str) -> None:
    for name, node in (("one", "node-1"), ("two", "node-2")):
        run_pod(cluster, namespace, trainer_pod(name, ["python", "-m", "http.server", "8000"], node))
        cluster.kubectl("-n", namespace, "expose", "pod", name, "--name", f"{name}-service", "--port=8000")
    fetch = (
        "import sys, time, urllib.request\n"
        "for _ in range(50):\n"
        "    try: print(urllib.request.urlopen(f'http://{sys.argv[1]}:8000', timeout=5).status); break\n"
        "    except OSError: time.sleep(0.2)\n"
    )
    for caller, called in (("one", "two"), ("two", "one"), ("one", "one")):
        python = ["exec", caller, "--", "python", "-c", fetch, f"{called}-service"]
        assert cluster.kubectl("-n", namespace, *python).strip() == "200"
    assert "GET / HTTP" in cluster.kubectl("-n", namespace, "logs", "two")


@embedded
@pytest.mark.cluster
def test_trainer_pods_see_the_machines_environment_and_cannot_change_it(cluster: Cluster, namespace: str) -> None:
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
def test_lost_node_turns_unready_and_comes_back(cluster: Cluster) -> None:
    cluster.lose_node("node-2")
    try:
        cluster.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=120s")
    finally:
        cluster.restore_node("node-2")
    cluster.kubectl("wait", "--for=condition=Ready", "node/node-2", "--timeout=120s")


@embedded
@pytest.mark.cluster
def test_link_that_went_by_itself_is_no_error_and_one_that_stays_is(cluster: Cluster) -> None:
    """A node's namespace takes its end of the link with it, which may be while the cluster is being taken down."""
    network.delete_link("rlt-no-link")
    with pytest.raises(ValueError, match="ip link delete lo"):
        network.delete_link("lo")


@embedded
@pytest.mark.cluster
def test_volume_is_one_folder_for_both_nodes(cluster: Cluster, namespace: str) -> None:
    folder = cluster.shared_volume(namespace, "shared")
    for name, node in (("one", "node-1"), ("two", "node-2")):
        pod = json.loads(json.dumps(trainer_pod(name, ["sh", "-c", f"touch /shared/{name}; sleep 600"], node)))
        pod["spec"]["volumes"].append({"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}})
        pod["spec"]["containers"][0]["volumeMounts"].append({"name": "shared", "mountPath": "/shared"})
        run_pod(cluster, namespace, pod)
    seen = cluster.kubectl("-n", namespace, "exec", "two", "--", "ls", "/shared").split()
    assert seen == sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    cluster.kubectl("-n", namespace, "delete", "pod", "one", "two", "--now")
    cluster.kubectl("-n", namespace, "delete", "pvc", "shared")
    cluster.kubectl("delete", "pv", f"{namespace}-shared")


@embedded
@pytest.mark.cluster
def test_cluster_beside_another_leaves_nothing_behind(cluster: Cluster, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cluster", 1, **BESIDE)
    before = sysctls()
    try:
        second = Cluster.up(nodes=1, state=layout.state, **BESIDE)
        run_pod(second, "default", trainer_pod("one", ["sleep", "600"]))
        assert second.nodes() == ["node-1"]
        during = traces(layout)
        held = namespaces([holder(layout, layout.node("node-1")), *cgroups.processes("/rlt101-node-1")])
    finally:
        lifecycle.down(layout.state)
    assert [name for name, found in during.items() if not found] == ["mounts"], "mounts are in the nodes' namespaces"
    assert len(held) >= 4, "the node and its pod have namespaces of their own"
    await_nothing_left(layout, held - namespaces([os.getpid()]))
    assert sysctls() == before
    assert not layout.state.exists()
    assert cluster.nodes() == ["node-1", "node-2"]


@embedded
@pytest.mark.cluster
def test_interrupted_start_is_removed_completely(cluster: Cluster, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "cluster", 1, **BESIDE)
    before = sysctls()
    state = ["--state", str(layout.state)]
    command = [sys.executable, "-m", "cluster", "up", *state, "--nodes=1", "--first-port=19440", "--subnet=101"]
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
        subprocess.run([sys.executable, "-m", "cluster", "down", *state], env=environment, check=True)
    await_nothing_left(layout, set())
    assert sysctls() == before


def accept_interrupts() -> None:
    """As in a terminal: a shell starts background jobs deaf to SIGINT, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    state = tmp_path_factory.mktemp("alone") / "cluster"
    yield Cluster.up(nodes=0, state=state, **ALONE)
    lifecycle.down(state)


@pytest.mark.apiserver
def test_anonymous_request_is_refused(alone: Cluster) -> None:
    assert alone.layout
    authority = ssl.create_default_context(cafile=str(alone.layout.certificates / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{alone.layout.server}/version", context=authority)


@pytest.mark.apiserver
def test_control_plane_alone_knows_kuberays_resources(alone: Cluster) -> None:
    assert "rayclusters.ray.io" in alone.kubectl("get", "crds", "-o", "name")
    assert alone.nodes() == []


@pytest.mark.apiserver
def test_healthy_cluster_is_reused(alone: Cluster) -> None:
    assert alone.layout
    before = processes.running(alone.layout.state)
    assert Cluster.up(nodes=0, state=alone.layout.state, **ALONE) == alone
    assert processes.running(alone.layout.state) == before


@pytest.mark.apiserver
def test_half_dead_cluster_is_made_anew(alone: Cluster) -> None:
    assert alone.layout
    running = processes.running(alone.layout.state)
    processes.kill(process.pid for process in running if process.name == "etcd")
    Cluster.up(nodes=0, state=alone.layout.state, **ALONE)
    assert lifecycle.is_healthy(alone.layout.state)


@pytest.mark.apiserver
def test_running_cluster_is_not_replaced_by_one_of_another_shape(alone: Cluster) -> None:
    assert alone.layout
    with pytest.raises(ValueError, match=r"nodes=0.* runs already"):
        Cluster.up(nodes=3, state=alone.layout.state, **ALONE)


@pytest.mark.apiserver
def test_foreign_clusters_nodes_are_not_ours_to_lose(alone: Cluster) -> None:
    with pytest.raises(ValueError, match="unset KUBECONFIG"):
        Cluster(alone.kubeconfig, None).lose_node("node-1")


def namespaces(pids: Iterable[int]) -> set[str]:
    """The network and mount namespaces of processes, those that have ended meanwhile apart."""
    found = set()
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found |= {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt")}
    return found


def await_nothing_left(layout: Layout, held: set[str]) -> None:
    """Return once the machine shows no trace of the cluster, nor one of the namespaces that it held."""
    deadline = time.monotonic() + 30
    while left := [name for name, found in traces(layout).items() if found] or held & namespaces(all_processes()):
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


def all_processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def traces(layout: Layout) -> dict[str, object]:
    """What a cluster leaves on the machine while it runs. Other clusters run beside it."""

    def lines(*command: str) -> list[str]:
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [line for line in printed.splitlines() if re.search(rf"\b{layout.bridge}\b", line)]

    groups = [f"rlt{layout.subnet}-node-{number}" for number in range(1, 3)]
    return {
        "processes": processes.running(layout.state),
        "containers": [pid for group in groups for pid in cgroups.processes(f"/{group}")],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(layout.state) in line],
        "links": [name for name in os.listdir("/sys/class/net") if re.match(rf"{layout.bridge}\b", name)],
        "routes": lines("ip", "route"),
        "rules": lines("nft", "--stateless", "list", "ruleset"),
        "groups": [root / group for root, _ in cgroups.mounted() for group in groups if (root / group).exists()],
    }


def sysctls() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text() for name in machine.SYSCTLS}
