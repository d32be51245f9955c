"""`rlt` against the real API server and the operator: jobs handed in, watched, changed and deleted.

- data is on standard output, talk on standard error, and exit codes are as documented;
- what is not there is named, with the command to go on with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes, Operator

pytestmark = pytest.mark.apiserver

Rlt = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rlt(kubernetes: Kubernetes, namespace: str) -> Rlt:
    """Runs `rlt ARGUMENTS` in the test's namespace and sees its exit code."""

    def run(*arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rlt_operator.cli.main", *arguments, "--namespace", namespace]
        environment = {**os.environ, "KUBECONFIG": str(kubernetes.cluster.kubeconfig)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == expected, (done.args, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def file(tmp_path: Path) -> str:
    manifest = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": o.SPEC}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    return str(tmp_path / "job.yaml")


def test_a_job_is_handed_in_and_shown(rlt: Rlt, file: str, operator: Operator) -> None:
    assert rlt("submit", file).stdout == "sum\n"
    rlt("wait", "sum", "--for", "Accepted", "--timeout", "60s")
    assert rlt("get").stdout.splitlines()[1].split()[:2] == ["sum", "Pending"]
    assert json.loads(rlt("get", "sum", "-o", "json").stdout)["spec"] == o.SPEC
    page = rlt("status", "sum").stdout
    assert "CONDITION" in page
    assert "ClusterReady" in page


def test_a_wrong_job_is_not_handed_in(rlt: Rlt, file: str, tmp_path: Path) -> None:
    wrong: dict[str, Any] = yaml.safe_load(Path(file).read_text())
    wrong["spec"] = {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 7}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    done = rlt("submit", str(tmp_path / "wrong.yaml"), expected=1)
    assert "spec.training.trainBatchSize" in done.stderr
    assert "no jobs" in rlt("get").stderr


def test_suspend_wait_resume_and_delete(rlt: Rlt, file: str, operator: Operator) -> None:
    rlt("submit", file)
    assert json.loads(rlt("suspend", "sum", "-o", "json").stdout)["spec"]["suspend"] is True
    done = rlt("wait", "sum", "--for", "Suspended", "--timeout", "60s", "-o", "json")
    assert json.loads(done.stdout)["status"]["phase"] == "Suspended"
    rlt("resume", "sum")
    assert rlt("wait", "sum", "--for", "Succeeded", "--timeout", "1s", expected=2).stderr.endswith("rlt status sum\n")
    assert "asks" in rlt("delete", "sum", expected=1).stderr
    rlt("delete", "sum", "--yes")
    assert "There is no RLTrainingJob sum" in rlt("status", "sum", expected=1).stderr


def test_a_cancelled_job_fails_and_waiting_for_it_ends(rlt: Rlt, file: str, operator: Operator) -> None:
    rlt("submit", file)
    rlt("cancel", "sum")
    assert "pendingDeadlineSeconds" in rlt("wait", "sum", "--timeout", "60s", expected=1).stderr
    assert "has ended already" in rlt("cancel", "sum", expected=1).stderr
    assert rlt("watch", "sum", expected=1).stdout.startswith("Failed: ")


def test_what_needs_a_running_job_says_so(rlt: Rlt, file: str, operator: Operator) -> None:
    rlt("submit", file)
    rlt("wait", "sum", "--for", "Accepted", "--timeout", "60s")
    for command in ("logs", "metrics", "rollouts"):
        assert "next: rlt status sum" in rlt(command, "sum", expected=1).stderr


def test_no_way_to_a_cluster_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlt_operator.cli.main", "get", "--kubeconfig", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: There is no way to a cluster")
    assert "Traceback" not in done.stderr
