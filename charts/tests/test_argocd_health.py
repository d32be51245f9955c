"""The health check of Argo CD, run in Lua on the status of every phase."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import observed as o
import pytest
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped]

from rlt_api.status.job_status import Phase
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.programs import obtain_built
from rlt_operator.observation import Observed
from rlt_operator.reconcile.plan import plan

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "charts/rlt-operator/files/argocd-health.lua").read_text()

Json = dict[str, Any]


def health(status: Json | None, generation: int = 1) -> tuple[str, str]:
    """The result for a job with this status. Argo CD runs the script as a function body with the global `obj`."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    job: Json = {"metadata": {"name": "sum", "generation": generation}}
    lua.globals().obj = lua.table_from(job | ({"status": status} if status else {}), recursive=True)
    result = lua.execute(SCRIPT)
    return result.status, result.message


def status_of(observed: Observed) -> Json:
    """The status that the operator writes."""
    decided = plan(observed, o.NOW)
    assert decided.status
    return decided.status.to_json()


GONE = replace(o.STARTED, cluster=None, pods=(), ray=None)
PHASES: list[tuple[str, Phase, Observed]] = [
    ("Progressing", Phase.PENDING, o.FRESH),
    ("Progressing", Phase.PROVISIONING, o.PROVISIONING),
    ("Progressing", Phase.RUNNING, o.RUNNING),
    ("Healthy", Phase.SUCCEEDED, replace(o.STARTED, ray=o.ended("SUCCEEDED", o.final_log()))),
    ("Degraded", Phase.FAILED, replace(o.STARTED, ray=o.ended("FAILED", "CUDA out of memory"))),
    ("Suspended", Phase.SUSPENDED, o.suspend(GONE)),
]


@pytest.mark.parametrize(("expected", "phase", "observed"), PHASES, ids=[phase for _, phase, _ in PHASES])
def test_every_phase_has_a_health_status(expected: str, phase: Phase, observed: Observed) -> None:
    status = status_of(observed)
    assert status["phase"] == phase
    assert health(status, observed.job.generation) == (expected, ANY)


def test_all_phases_are_tested() -> None:
    assert {phase for _, phase, _ in PHASES} == set(Phase)


def test_the_message_contains_the_progress() -> None:
    assert health(status_of(o.RUNNING))[1].endswith("(45%)")


def test_a_stalled_job_is_degraded() -> None:
    """The job can still run after a person installs KubeRay."""
    assert health(status_of(replace(o.FRESH, kuberay_installed=False)))[0] == "Degraded"


def test_a_job_that_releases_its_cluster_is_progressing() -> None:
    assert health(status_of(o.suspend(o.STARTED)), 2)[0] == "Progressing"


@pytest.mark.parametrize(("status", "generation"), [(None, 1), (status_of(o.suspend(GONE)), 9)])
def test_a_job_that_is_not_reconciled_is_progressing(status: Json | None, generation: int) -> None:
    state, message = health(status, generation)
    assert state == "Progressing"
    assert "has not reconciled" in message


@pytest.mark.apiserver
def test_the_documented_command_adds_the_script(installed: Cluster) -> None:
    installed.kubectl("create", "namespace", "argocd")
    installed.kubectl(
        "create", "configmap", "argocd-cm", "-n", "argocd", "--from-literal=url=https://argocd.example.com"
    )
    (command,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/argocd.md").read_text(), re.DOTALL)
    environment = {
        **os.environ,
        "KUBECONFIG": str(installed.kubeconfig),
        "PATH": f"{obtain_built()}:{os.environ['PATH']}",
    }
    subprocess.run(["bash", "-ec", command], cwd=ROOT, env=environment, check=True)
    data = json.loads(installed.kubectl("get", "configmap", "argocd-cm", "-n", "argocd", "-o", "json"))["data"]
    assert data == {"url": "https://argocd.example.com", "resource.customizations.health.rlt.dev_RLTrainingJob": SCRIPT}
