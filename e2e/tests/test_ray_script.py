"""`rlt render --target ray` on two hosts, with two jobs on one Ray cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_e2e.hosts import Host, start_hosts

pytestmark = pytest.mark.hosts

PROGRAM = """
import os, socket, ray
ray.init("auto")
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Worker:
    def describe(self):
        return socket.gethostname(), os.environ["JOB"]
workers = [Worker.remote() for _ in range(2)]
print("workers", sorted(ray.get([worker.describe.remote() for worker in workers])))
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Host]]:
    with start_hosts(("host-1", "host-2")) as started:
        yield started


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with a short path, for Ray's sockets."""
    path = Path(tempfile.mkdtemp(prefix="rlt-ray-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def render(folder: Path, name: str) -> Path:
    workers = [{"replicas": 2, "resources": {"cpu": "2", "memory": "1Gi"}}]
    spec: dict[str, Any] = {
        "framework": {"type": "command", "command": ["python3", "-c", PROGRAM]},
        "cluster": {"image": "localhost/any", "workers": workers, "env": [{"name": "JOB", "value": name}]},
    }
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": name}, "spec": spec}
    rendered = subprocess.run(
        [sys.executable, "-m", "rlt_cli.main", "render", "-", "--target", "ray", "--storage", folder / "shared"],
        input=yaml.safe_dump(manifest),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    script = folder / f"{name}.sh"
    script.write_text(rendered.stdout)
    return script


def start(host: Host, folder: Path, words: Sequence[str | Path], **variables: str) -> subprocess.Popen[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RAY_TMPDIR": str(folder), **variables}
    return subprocess.Popen(
        [*host.enter, "bash", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    return output


def test_two_jobs_share_a_ray_cluster_of_two_hosts(hosts: dict[str, Host], folder: Path) -> None:
    first = render(folder, "first")
    second = render(folder, "second")
    head, other = hosts.values()
    finish(start(head, folder, [first, "head"]))
    finish(start(other, folder, [first, "worker-workers", head.address]))
    token = next((folder / "shared/configs").glob("first-*/ray-token"))
    shared = {"RAY_ADDRESS": "http://127.0.0.1:8265", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    running = [start(head, folder, [first, "submit"]), start(head, folder, [second, "submit"], **shared)]
    for name, process in zip(("first", "second"), running, strict=True):
        assert f"workers [('host-1', '{name}'), ('host-2', '{name}')]" in finish(process)
    assert token.stat().st_mode & 0o077 == 0
