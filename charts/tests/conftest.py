"""The chart, rendered by the Helm of the embedded cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.programs import obtain_built

CHART = Path(__file__).parents[1] / "rlt-operator"
FIRST_PORT = 16540 + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""First port of the control plane. Other tests use other ports."""

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Helm with arguments."""
    program = obtain_built() / "helm"
    return lambda *arguments: subprocess.run([program, *arguments], capture_output=True, text=True)


@pytest.fixture(scope="session")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Render:
    """`render("image.tag=dev", ...)`: the manifests of a release rlt-operator. Raises ValueError if Helm fails."""

    def run(*values: str) -> list[Manifest]:
        release = ("template", "rlt-operator", str(CHART), "--namespace", "rlt-system")
        done = helm(*release, *(argument for value in values for argument in ("--set", value)))
        if done.returncode:
            raise ValueError(done.stderr)
        return list(yaml.safe_load_all(done.stdout))

    return run


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server with the chart installed. It has no nodes."""
    cluster = Cluster.up(nodes=0, state=tmp_path_factory.mktemp("installed"), first_port=FIRST_PORT)
    try:
        cluster.kubectl("apply", "--server-side", "-f", CHART / "crds")
        cluster.helm("install", "rlt-operator", CHART, "--namespace", "rlt-system", "--create-namespace", "--skip-crds")
        yield cluster
    finally:
        cluster.down()
