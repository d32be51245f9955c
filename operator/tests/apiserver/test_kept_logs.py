"""The pod that `rlt logs` creates to read the volume of a job: admitted as restricted, and deleted on Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import observed as o
import pytest
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes
from apiserver.waiting import eventually

pytestmark = pytest.mark.apiserver

INTERRUPTIBLE = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
INTERRUPTIBLE += "runpy.run_module('rlt_cli.main', run_name='__main__')"
"""Runs `rlt` with SIGINT as on a terminal: a background job of a shell ignores it."""
CLAIMED: dict[str, Any] = {**o.SPEC, "storage": {"claimName": "runs"}}


def list_pods(kubernetes: Kubernetes, namespace: str) -> list[str]:
    return kubernetes.kubectl("get", "pods", "-n", namespace, "-o", "name").split()


def test_the_pod_is_restricted_and_deleted_on_ctrl_c(kubernetes: Kubernetes, namespace: str) -> None:
    kubernetes.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubernetes.create_job(namespace, CLAIMED)
    command = [sys.executable, "-c", INTERRUPTIBLE, "logs", "sum", "--attempt", "1", "--namespace", namespace]
    environment = {**os.environ, "KUBECONFIG": str(kubernetes.cluster.kubeconfig)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as reading:
        (pod,) = eventually("a pod", lambda: list_pods(kubernetes, namespace))
        assert pod.startswith("pod/sum-logs-")
        reading.send_signal(signal.SIGINT)
        assert reading.wait(timeout=300) == 130
    assert list_pods(kubernetes, namespace) == []


def test_a_pod_that_cannot_be_created_is_an_error(kubernetes: Kubernetes, namespace: str, rlt: Rlt) -> None:
    kubernetes.create_job(namespace, CLAIMED)
    kubernetes.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace)
    hard = ("get", "quota", "none", "-n", namespace, "-o", "jsonpath={.status.hard.pods}")
    eventually("the quota", lambda: kubernetes.kubectl(*hard) == "0")
    assert "exceeded quota" in rlt("logs", "sum", "--list", expected=1).stderr


def test_a_job_without_a_volume_has_no_kept_files(kubernetes: Kubernetes, namespace: str, rlt: Rlt) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    failed = rlt("logs", "sum", "--attempt", "1", expected=1)
    assert "The logs of job sum ended with its pods: spec.storage has no PVC." in failed.stderr


def test_the_log_of_a_job_that_has_ended_does_not_need_its_head(
    kubernetes: Kubernetes, namespace: str, rlt: Rlt
) -> None:
    """Its status still has the Ray cluster, whose Service is gone."""
    kubernetes.create_job(namespace, CLAIMED)
    time = "2026-01-02T03:04:05Z"
    ended = {"type": "Succeeded", "status": "True", "reason": "Completed", "message": "", "lastTransitionTime": time}
    cluster = {"name": "sum", "readyWorkers": 0, "desiredWorkers": 1, "jobId": "sum-1"}
    status = {"conditions": [{**ended, "observedGeneration": 1}], "rayCluster": cluster, "startTime": time}
    options = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    kubernetes.kubectl("patch", "rltrainingjob", "sum", "-n", namespace, *options)
    kubernetes.kubectl("create", "quota", "none", "--hard=pods=0", "-n", namespace)
    hard = ("get", "quota", "none", "-n", namespace, "-o", "jsonpath={.status.hard.pods}")
    eventually("the quota", lambda: kubernetes.kubectl(*hard) == "0")
    assert "exceeded quota" in rlt("logs", "sum", expected=1).stderr, "a pod reads the volume"


def test_a_job_with_a_bucket_names_the_command_that_reads_its_results(
    kubernetes: Kubernetes, namespace: str, rlt: Rlt, tmp_path: Path
) -> None:
    storage = {"bucket": "s3://runs/team-a", "endpoint": "http://minio:9000"}
    kubernetes.create_job(namespace, {**o.SPEC, "storage": storage})
    (job,) = kubernetes.list_objects(namespace, "rltrainingjob")
    status = {"status": {"startTime": "2026-01-02T03:04:05Z"}}
    kubernetes.kubectl(
        *("patch", "rltrainingjob", "sum", "-n", namespace),
        *("--subresource=status", "--type=merge", "-p", json.dumps(status)),
    )
    url = f"s3://runs/team-a/runs/sum-{job['metadata']['uid'][:8]}"
    commands = {("metrics",): "report", ("rollouts",): "report", ("logs",): "logs", ("logs", "--list"): "logs"}
    for (name, *options), command in commands.items():
        message = rlt(name, "sum", *options, expected=1).stderr
        assert f"`AWS_ENDPOINT_URL_S3=http://minio:9000 rlt {command} {url}`" in message, message
    file = tmp_path / "report.html"
    rlt("report", "sum", "--file", str(file))
    assert f"rlt report {url}" in file.read_text()
