"""A real Ray head for tests, with the files that a pod has."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apiserver.waiting import eventually

from rlt_core.names import DASHBOARD_PORT
from rlt_e2e.ports import free_port

if TYPE_CHECKING:
    from apiserver.in_cluster import Kubernetes

MOUNT_CONFIG = """
mkdir "$0/etc" "$0/rlt"
mount -t tmpfs etc "$0/etc"
cp -a /etc/. "$0/etc"
mkdir "$0/etc/rlt"
mount --bind "$0/etc" /etc
mount --bind "$0/rlt" /etc/rlt
exec "$@"
"""
"""Runs a command in its own mount namespace, with a copy of this machine's /etc that also has a directory rlt."""


def find_address() -> str:
    """An address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.255.255.255", 1))  # sends nothing, but selects the address
        address: str = probe.getsockname()[0]
        return address


@dataclass
class RayHead:
    """A real Ray head on this machine. A directory is mounted as its /etc/rlt, as in a pod."""

    address: str
    """An address of this machine. The operator reaches the job API there, as at the IP of a pod."""
    port: int = DASHBOARD_PORT
    """The port of the dashboard and its job API."""
    cpus: int = 0
    """CPUs for actors, which the workers of a cluster would provide."""
    token: str | None = None
    """The token that clients need."""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray")  # short, because Ray creates sockets there
        self.agent_port = free_port()
        own = ("--port", "--dashboard-agent-grpc-port", "--runtime-env-agent-port")
        options = [f"--dashboard-host={self.address}", f"--dashboard-port={self.port}", f"--temp-dir={self.folder}"]
        options += [f"--num-cpus={self.cpus}", f"--dashboard-agent-listen-port={self.agent_port}"]
        options += [f"{option}={free_port()}" for option in own]
        programs = Path(sys.executable).parent
        ray: list[str | Path] = [programs / "ray", "start", "--head", "--block", "--disable-usage-stats", *options]
        self.process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", MOUNT_CONFIG, self.folder, *ray],
            env={**os.environ, **self._authentication(), "PATH": f"{programs}:{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually("Ray responds", self.responds)

    def _authentication(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token} if self.token else {"RAY_AUTH_MODE": "disabled"}

    def mount(self, kubernetes: Kubernetes, ray_cluster: dict[str, Any]) -> None:
        """Write the files of the projected volume training-config, as the kubelet does."""
        volumes = ray_cluster["spec"]["headGroupSpec"]["template"]["spec"]["volumes"]
        (projected,) = (volume["projected"] for volume in volumes if volume["name"] == "training-config")
        for source in projected["sources"]:
            config_map = kubernetes.get(ray_cluster["metadata"]["namespace"], "configmap", source["configMap"]["name"])
            assert config_map
            contents = {key: text.encode() for key, text in config_map.get("data", {}).items()}
            contents |= {key: b64decode(text) for key, text in config_map.get("binaryData", {}).items()}
            for item in source["configMap"]["items"]:
                file = Path(self.folder, "rlt", item["path"])
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(contents[item["key"]])

    def stop(self) -> None:
        assert self.process
        self.process.terminate()
        self.process.wait(timeout=300)
        shutil.rmtree(self.folder, ignore_errors=True)

    def jobs(self) -> dict[str, str]:
        """Submission id -> status."""
        headers = {"X-Ray-Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(f"http://{self.address}:{self.port}/api/jobs/", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return {job["submission_id"]: job["status"] for job in json.load(response) if job["submission_id"]}

    def responds(self) -> bool:
        """Whether the job API responds and the node is ready for jobs. (KubeRay's readiness probe asks for both.)"""
        self.check_runs()
        try:
            self.jobs()
            with urllib.request.urlopen(
                f"http://{self.address}:{self.agent_port}/api/local_raylet_healthz", timeout=10
            ):
                return True
        except OSError:
            return False

    def check_runs(self) -> None:
        """Fail with Ray's own error if Ray has ended. It does so if its agents do not start in time."""
        assert self.process
        if self.process.poll() is not None:
            logs = Path(self.folder).glob("session_latest/logs/raylet.err")
            errors = "".join(log.read_text()[:2000] for log in logs)
            raise AssertionError(f"Ray ended with status {self.process.returncode}: {errors}")
