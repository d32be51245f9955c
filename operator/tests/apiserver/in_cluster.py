"""Handles for the tests: the API server with what KubeRay and the kubelets would do, and the operator's process."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509

from cluster import Cluster
from rlt_api.driver_report import METRICS_PORT
from rlt_core.names import DASHBOARD_PORT

DEADLINE_S = 30.0


def eventually(
    what: str, seen: Callable[[], Any], deadline_s: float = DEADLINE_S, *, tell: Callable[[], object] = str
) -> Any:
    """The first true value of `seen`. `tell` says how things are if there is none in time."""
    end = time.monotonic() + deadline_s
    while not (value := seen()):
        assert time.monotonic() < end, f"not within {deadline_s:.0f} s: {what}; {tell()}"
        time.sleep(0.2)
    return value


@dataclass(frozen=True)
class Kubernetes:
    """The API server."""

    cluster: Cluster

    def kubectl(self, *arguments: str | Path, input: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, input=input)

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] | None = json.loads(text) if text else None
        return found

    def create_job(self, namespace: str, spec: dict[str, Any], name: str = "sum") -> None:
        manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": name}, "spec": spec}
        self.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(manifest))

    def ray_cluster(self, namespace: str, name: str = "sum") -> dict[str, Any]:
        """The job's RayCluster, once it is there."""
        found: dict[str, Any] = eventually("a RayCluster", lambda: self.get(namespace, "raycluster", name))
        return found

    def status(self, namespace: str, name: str = "sum") -> dict[str, Any]:
        job = self.get(namespace, "rltrainingjob", name)
        status: dict[str, Any] = (job or {}).get("status", {})
        return status

    def condition(self, namespace: str, type: str, name: str = "sum") -> tuple[str, str, str]:
        found = [c for c in self.status(namespace, name).get("conditions", []) if c["type"] == type]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")

    def wait(self, namespace: str, type: str, expected: str = "True") -> None:
        """Wait until the condition has that status or reason."""
        eventually(
            f"{type}: {expected}",
            lambda: expected in self.condition(namespace, type)[:2],
            60,
            tell=lambda: self.status(namespace).get("message"),
        )

    def events(self, namespace: str) -> list[str]:
        return self.kubectl("get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}").split()

    def play_kuberay(
        self, namespace: str, statuses: dict[str, dict[str, Any]], name: str = "sum", *, node: str | None = None
    ) -> None:
        """Make the pods of the RayCluster with the statuses given: what KubeRay, scheduler and kubelet would do."""
        cluster = self.get(namespace, "raycluster", name)
        assert cluster
        for pod, status in statuses.items():
            kind = "headGroupSpec" if "head" in pod else "workerGroupSpecs"
            group = cluster["spec"][kind] if kind == "headGroupSpec" else cluster["spec"][kind][0]
            template = group["template"]
            owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": name, "uid": cluster["metadata"]["uid"]}
            node_type = "head" if "head" in pod else "worker"
            manifest = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": pod,
                    "labels": {**template["metadata"]["labels"], "ray.io/node-type": node_type},
                    "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                },
                "spec": {**template["spec"], "nodeName": node},
            }
            self.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(manifest))
            patch = json.dumps({"status": status})
            self.kubectl("patch", "pod", pod, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)

    def suspend(self, namespace: str, suspend: bool, name: str = "sum") -> None:
        patch = json.dumps({"spec": {"suspend": suspend}})
        self.kubectl("patch", "rltrainingjob", name, "-n", namespace, "--type=merge", "-p", patch)

    def end_pods(self, namespace: str) -> None:
        """Pods without a node end at once: what the kubelet would do."""
        self.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=0", "--force")

    def make_service(self, namespace: str, ray: RayHead, name: str = "sum") -> None:
        """The head's service, which KubeRay would make, leading to a Ray head on this machine."""
        service, port = f"{name}-head-svc", {"name": "dashboard", "port": DASHBOARD_PORT}
        progress = {"name": "rlt-metrics", "port": METRICS_PORT}
        pod = {"kind": "Pod", "namespace": namespace, "name": PODS[0]}  # the API server's proxy asks for its address
        ports = [{**port, "port": ray.port}, progress]
        endpoint = {"addresses": [{"ip": ray.address, "targetRef": pod}], "ports": ports}
        for item in (
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": {"ports": [port, progress]}},
            {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": service}, "subsets": [endpoint]},
        ):
            self.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(item))


@dataclass
class RayHead:
    """A real Ray head on this machine, on ports of its own. It sees a folder as /etc/rlt, as if it ran in a pod."""

    address: str
    port: int = field(default_factory=lambda: free_port())
    """Of the dashboard, with the job API."""
    cpus: int = 0
    """What it offers to actors, as if workers had joined it."""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray")  # short: Ray makes sockets there
        own = ("--port", "--dashboard-agent-listen-port", "--dashboard-agent-grpc-port", "--runtime-env-agent-port")
        options = ["--dashboard-host=0.0.0.0", f"--dashboard-port={self.port}", f"--temp-dir={self.folder}"]
        options += [f"--num-cpus={self.cpus}", *(f"{option}={free_port()}" for option in own)]
        programs = Path(sys.executable).parent
        ray = [programs / "ray", "start", "--head", "--block", "--disable-usage-stats", *options]
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", MOUNT_CONFIG, self.folder, *ray],
            env={**os.environ, "RAY_AUTH_MODE": "disabled", "PATH": f"{programs}:{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually("Ray answers", self.answers, 120)

    def mount(self, volume: dict[str, Any], data: dict[str, str]) -> None:
        """Lay the ConfigMap's data out as the volume says: what the kubelet would do."""
        for item in volume.get("items", [{"key": key, "path": key} for key in data]):
            file = Path(self.folder, "rlt", item["path"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(data[item["key"]])

    def stop(self) -> None:
        assert self.process
        self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def jobs(self) -> dict[str, str]:
        """Submission id -> status."""
        with urllib.request.urlopen(f"http://{self.address}:{self.port}/api/jobs/", timeout=10) as answer:
            return {job["submission_id"]: job["status"] for job in json.load(answer) if job["submission_id"]}

    def answers(self) -> bool:
        try:
            self.jobs()
        except OSError:
            return False
        return True


@dataclass
class Operator:
    """`rlt-operator run` with KUBECONFIG."""

    kubeconfig: Path
    log: Path
    options: tuple[str, ...] = ()
    """More of the command line."""
    port: int = field(default_factory=lambda: free_port())
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "rlt_operator", "run", "--metrics-port", str(self.port), *self.options]
        with self.log.open("ab") as log:
            environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.log.parent)
        eventually("the operator is ready", lambda: self.alive() and self.fetch("/readyz") == "ok\n")

    def alive(self) -> bool:
        assert self.process
        assert self.process.poll() is None, self.log.read_text()
        return True

    def kill(self) -> None:
        """As a crash: SIGKILL."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def looks(self) -> float:
        """How many looks at jobs there have been."""
        name = "rlt_operator_reconcile_duration_seconds_count "
        lines = self.fetch("/metrics").splitlines()
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    def fetch(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.URLError:
            return ""


@dataclass(frozen=True)
class Webhook:
    """The operator with its admission webhook."""

    kubernetes: Kubernetes
    operator: Operator
    port: int

    def wait(self) -> None:
        """Until the API server asks and trusts it: what only the webhook refuses is refused by it."""
        seen = [""]

        def refused() -> bool:
            seen[0] = self.refusal({"nodePool": []}, "--validate=false", kind="RLRuntime")
            return "is not a field" in seen[0]

        eventually("the API server asks the webhook", refused, tell=lambda: seen[0] or "it takes everything")

    def serial(self) -> int:
        """Number of the certificate that the server shows."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.port))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    def refusal(self, spec: dict[str, Any], *options: str, kind: str = "RLTrainingJob", name: str = "asked") -> str:
        """What the API server says to a dry run of `kubectl apply`; nothing if it takes the object."""
        manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        try:
            self.kubernetes.kubectl("apply", "--dry-run=server", *options, "-f", "-", input=json.dumps(manifest))
        except ValueError as error:
            return str(error)
        return ""


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on. Each of pytest's processes has a range of its own."""
    first = 17440 + 500 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

    def taken(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return next(start for start in itertools.count(first, 10) if not any(map(taken, range(start, start + count))))


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel gives to outgoing connections (from 32768 on)."""
    for port in random.sample(range(20000, 32768), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port
    raise AssertionError("100 ports in use")


MOUNT_CONFIG = """
mkdir "$0/etc" "$0/rlt"
mount -t tmpfs etc "$0/etc"
cp -a /etc/. "$0/etc"
mkdir "$0/etc/rlt"
mount --bind "$0/etc" /etc
mount --bind "$0/rlt" /etc/rlt
exec "$@"
"""
"""In a mount namespace of its own: an /etc that has a folder rlt, and for the rest is a copy of this machine's."""

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
PODS = ("sum-head-a", "sum-workers-worker-b", "sum-workers-worker-c")
