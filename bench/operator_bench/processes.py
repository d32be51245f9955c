"""The processes of a run: the operator as in its pod, its peers, the simulated heads. CPU and memory of each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.cluster.processes import CLUSTER_VARIABLE

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READY_S = 300.0
METRICS_PORT = 9001
CONTROL_PORT = 9002
TOKEN_KEY = "--ray-token-key=default/rlt-operator-ray-token-key"

AS_IN_A_POD = """
mount -t tmpfs run /run
mkdir -p /run/secrets/kubernetes.io
cp -r "$0" /run/secrets/kubernetes.io/serviceaccount
exec "$@"
"""
"""Runs a command with the files of a service account, so that the operator connects to the heads' IPs itself."""


@dataclass
class Process:
    """A process of the bench. The removal of the cluster ends it too."""

    name: str
    command: Sequence[str | Path]
    layout: Layout
    environment: Mapping[str, str] = field(default_factory=dict)
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process. Its output goes to the cluster's logs."""
        environment = {**os.environ, CLUSTER_VARIABLE: str(self.layout.state), **self.environment}
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                list(map(str, self.command)), env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    @property
    def log(self) -> Path:
        return self.layout.logs / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self.popen
        return self.popen.pid

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the process."""
        if self.popen and self.popen.poll() is None:
            self.popen.send_signal(number)
            self.popen.wait(timeout=60)

    def check(self) -> None:
        """Raise RuntimeError with the end of its log if the process has ended."""
        assert self.popen
        if self.popen.poll() is not None:
            end = "\n".join(self.log.read_text().splitlines()[-20:])
            raise RuntimeError(f"{self.name} ended with status {self.popen.returncode}:\n{end}")

    def cpu_s(self) -> float:
        """CPU seconds since its start."""
        return read_cpu_s(self.pid)

    def memory_mb(self, name: str = "VmRSS") -> float:
        """Resident memory in MB; with VmHWM its peak."""
        self.check()
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)[0]) / 1000


@dataclass
class Operator(Process):
    """`rlt-operator run` with a service account, as in its pod."""

    port: int = METRICS_PORT
    """Of its metrics."""

    def wait(self) -> None:
        """Wait until it is ready: its cache is complete."""
        wait_for_ok(self, f"http://127.0.0.1:{self.port}/readyz")

    def metrics(self) -> str:
        """All of its metrics."""
        return fetch(f"http://127.0.0.1:{self.port}/metrics")

    def metric_or_zero(self, name: str) -> float:
        """A metric with its labels, as /metrics prints it; 0 if it has no value yet."""
        found = [float(line[len(name) :]) for line in self.metrics().splitlines() if line.startswith(f"{name} ")]
        return found[0] if found else 0.0

    def requests(self) -> Counter[str]:
        """Requests to the API server since its start, by method and resource."""
        found: Counter[str] = Counter()
        for line in self.metrics().splitlines():
            if line.startswith("rlt_operator_api_requests_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                found[f"{labels['method']} {labels['resource']}"] += int(float(line.rpartition(" ")[2]))
        return found


def make_operator(
    cluster: Cluster, *, options: Sequence[str] = (), name: str = "operator", port: int = METRICS_PORT
) -> Operator:
    """The operator with a service account that may do everything."""
    layout = cluster.layout
    assert layout
    folder = layout.state / "serviceaccount"
    if not folder.exists():
        cluster.kubectl("create", "serviceaccount", "rlt-operator", "-n", "default")
        admin = ("--clusterrole=cluster-admin", "--serviceaccount=default:rlt-operator")
        cluster.kubectl("create", "clusterrolebinding", "rlt-operator", *admin)
        folder.mkdir()
        (folder / "token").write_text(cluster.kubectl("create", "token", "rlt-operator", "--duration=24h"))
        (folder / "ca.crt").write_bytes((layout.certificates / "ca.crt").read_bytes())
        (folder / "namespace").write_text("default")
    program = (sys.executable, "-m", "rlt_operator", "run")
    run: list[str | Path] = [*program, f"--metrics-port={port}", TOKEN_KEY, *options]
    command = ["unshare", "--mount", "sh", "-ec", AS_IN_A_POD, folder, *run]
    api_port = str(layout.port("kube-apiserver"))
    return Operator(
        name,
        command,
        layout,
        {"KUBERNETES_SERVICE_HOST": layout.address, "KUBERNETES_SERVICE_PORT": api_port, "KUBECONFIG": ""},
        port=port,
    )


def make_simulator(layout: Layout) -> Process:
    """The Ray heads of all jobs."""
    return Process("simulator", [sys.executable, "-m", "operator_bench.simulator", str(CONTROL_PORT)], layout)


def read_cpu_s(pid: int) -> float:
    """CPU seconds of a process since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def wait_for_ok(process: Process, url: str) -> None:
    """Wait until the URL answers with status 200. Raises RuntimeError if the process ends."""
    deadline = time.monotonic() + READY_S
    while not fetch(url):
        process.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.name} is not ready after {READY_S:.0f} s")
        time.sleep(0.05)


def fetch(url: str) -> str:
    """The body of a response with status 200; empty for others."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            text: str = response.read().decode()
            return text
    except (urllib.error.URLError, OSError):
        return ""
