"""A release is installed from its registry into a new cluster, and a job trains with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from release.programs import CRANE, obtain_program
from release.source import read_tree
from rlt_e2e.api_objects import read_objects
from rlt_e2e.cluster import Cluster, node
from rlt_e2e.cluster.layout import Layout
from rlt_e2e.environment import ROOT, VENV
from rlt_e2e.installation import RELEASE, SYSTEM_NAMESPACE, create_namespace
from rlt_e2e.jobs import START_TIMEOUT_S, apply_job, await_condition, build_learning_job
from rlt_e2e.oci_registry import oci_registry

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NUMBER = 8
"""The number of the cluster: pytest's workers have the first ones."""


@dataclass(frozen=True)
class Released:
    version: str
    folder: Path
    registry: str
    """Its address on the machine and on the node."""


@pytest.fixture(scope="module")
def new_cluster() -> Iterator[Cluster]:
    """An embedded cluster of one node, without the operator."""
    if "KUBECONFIG" in os.environ:
        pytest.skip("with KUBECONFIG, the nodes do not reach a registry on loopback of this machine")
    layout = Layout.numbered(NUMBER, nodes=1)
    cluster = Cluster.up(nodes=1, state=layout.state, first_port=layout.first_port, subnet=layout.subnet)
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def released(new_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """A release of this repository, in a registry on loopback of the machine and in another one of the node."""
    folder = tmp_path_factory.mktemp("release")
    version = next(iter(read_tree("").versions.values()))
    clone = copy_at_tag(folder / "clone", version)
    crane = obtain_program(CRANE)
    layout = new_cluster.layout
    assert layout
    (only,) = layout.all_nodes()
    with ExitStack() as stack:
        registry = stack.enter_context(oci_registry(crane, folder / "registry"))
        port = int(registry.rpartition(":")[2])
        inside = node.build_command(layout, only)
        stack.enter_context(oci_registry(crane, folder / "registry-of-node", port=port, inside=inside))
        options = ["--registry", registry, "--homepage", "https://example.com/owner/rlt"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([f"{clone}/tools", f"{clone}/e2e"])}
        command = [sys.executable, "-m", "release", "--version", version, *options]
        subprocess.run(command, cwd=clone, env=environment, check=True)
        files = clone / "out/release" / version
        for pushed in (files / "pushed.txt").read_text().splitlines():
            pinned = pushed.split()[0]
            source = pinned.replace(registry, f"{layout.machine}:{port}")
            subprocess.run([*inside, crane, "copy", source, pinned], check=True)
        yield Released(version, files, registry)


def copy_at_tag(folder: Path, version: str) -> Path:
    """Copy the files of the repository into a new one, commit them with a dated changelog, and tag the commit."""
    for name in run_git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and name != ".venv" and os.path.lexists(ROOT / name):
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy, follow_symlinks=False)
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(re.sub(rf"(?m)^## {version} \(.*\)$", f"## {version} (2026-01-01)", changelog.read_text()))
    run_git(folder, "init", "--quiet")
    (folder / ".venv").symlink_to(VENV)
    (folder / ".git/info/exclude").write_text(".venv\n")
    run_git(folder, "add", "--all")
    author = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"]
    run_git(folder, *author, "commit", "--quiet", "--message", "all: release")
    run_git(folder, "tag", f"v{version}")
    return folder


def run_git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_job_trains_with_the_released_operator(new_cluster: Cluster, released: Released) -> None:
    new_cluster.helm(
        *("install", RELEASE, f"oci://{released.registry}/charts/rlt-operator", "--version", released.version),
        *("--plain-http", "--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--wait", "--timeout", "5m"),
    )
    pushed = (released.folder / "pushed.txt").read_text()
    (digest,) = re.findall(r"/rlt-operator@(sha256:\S+) \S+\n(?=.*/charts/)", pushed)
    statuses = [
        status
        for pod in read_objects(new_cluster, SYSTEM_NAMESPACE, "pod")
        for status in pod["status"]["containerStatuses"]
    ]
    assert statuses
    assert all(status["imageID"].endswith(digest) for status in statuses)
    new_cluster.helm("test", RELEASE, "--namespace", SYSTEM_NAMESPACE)
    create_namespace(new_cluster, "released")
    job = build_learning_job("short", steps=2, save_freq=2, workers=1)
    job["spec"]["training"]["warmup"]["steps"] = 2
    for part in (job["spec"]["cluster"]["head"], *job["spec"]["cluster"]["workers"]):
        part["resources"]["cpu"] = "700m"  # one node of two cores has both pods
    apply_job(new_cluster, "released", job)
    succeeded = await_condition(new_cluster, "released", "short", "Succeeded", timeout_s=START_TIMEOUT_S)
    assert succeeded["status"]["progress"]["step"] == 2
