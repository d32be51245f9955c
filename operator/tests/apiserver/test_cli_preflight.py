"""`rlt preflight` against the API server. The test ends the job as the operator would.

- it prints the checks, and deletes the job, also a failed one;
- a job that is deleted meanwhile is a failure.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes

pytestmark = pytest.mark.apiserver

NAME = "sum-preflight"
CHECK = {"name": "dns", "result": "failed", "message": "b cannot resolve sum-head-svc.", "remedy": "Inspect CoreDNS."}


def end_job(kubernetes: Kubernetes, namespace: str, condition: str) -> None:
    """Wait for the job, and write a final status."""
    job = ("rltrainingjob", NAME, "-n", namespace)
    kubernetes.kubectl("wait", "--for=create", *job, "--timeout=300s")
    final = {"type": condition, "status": "True", "observedGeneration": 1, "reason": "R", "message": "m"}
    status: dict[str, Any] = {
        "conditions": [{**final, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "preflight": [CHECK],
    }
    patch = json.dumps({"status": status})
    kubernetes.kubectl("patch", *job, "--subresource=status", "--type=merge", "-p", patch)


@pytest.mark.parametrize(("condition", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_the_checks_are_printed_and_the_job_is_deleted(
    condition: str, code: int, kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str
) -> None:
    running = rlt.start("preflight", job_file)
    end_job(kubernetes, namespace, condition)
    output, errors = running.communicate(timeout=300)
    assert running.returncode == code, errors
    assert "✗ dns" in output
    assert kubernetes.kubectl("get", "rltrainingjobs", "-n", namespace, "-o", "name") == ""


def test_a_deleted_job_is_a_failure(kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str) -> None:
    running = rlt.start("preflight", job_file, "-o", "json")
    kubernetes.kubectl("wait", "--for=create", "rltrainingjob", NAME, "-n", namespace, "--timeout=300s")
    kubernetes.kubectl("delete", "rltrainingjob", NAME, "-n", namespace)
    output, errors = running.communicate(timeout=300)
    assert running.returncode == 1, (output, errors)
