"""`rlt bundle` on the API server: what the archive contains, and what it masks."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Operator

pytestmark = pytest.mark.apiserver

PASSWORD = "correct-horse-battery"
SPEC = {
    "preflight": {"level": "basic"},
    "framework": {"type": "command", "command": ["python3", "train.py", "--api-key", "staple-1234"]},
    "cluster": {
        "image": "registry.example/trainer:1",
        "workers": [{"resources": {"cpu": "1", "memory": "4Gi"}}],
        "env": [{"name": "DB_PASSWORD", "value": PASSWORD}, {"name": "LEVEL", "value": "info"}],
    },
}


def read(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.removeprefix("sum-bundle/"): each.read().decode() for name, each in members.items() if each}


def test_the_archive_contains_the_job_and_no_secret(
    kubernetes: Kubernetes, rlt: Rlt, operator: Operator, namespace: str, tmp_path: Path
) -> None:
    kubernetes.create_job(namespace, SPEC)
    kubernetes.ray_cluster(namespace)
    kubernetes.play_kuberay(namespace, {"sum-head-a": {"phase": "Pending"}})
    secret = ("create", "secret", "generic", "sum-token", "-n", namespace, "--from-literal=token=do-not-read-me")
    kubernetes.kubectl(*secret)
    kubernetes.kubectl("label", "secret", "sum-token", "rlt.dev/job=sum", "-n", namespace)
    target = tmp_path / "report.tar.gz"
    done = rlt("bundle", "sum", "--file", str(target), "-o", "json")
    files = read(target)
    assert set(json.loads(done.stdout)["files"]) | {"errors.txt"} == set(files)
    assert {
        "job.yaml",
        "versions.yaml",
        "events.yaml",
        "children/raycluster-sum.yaml",
        "children/pod-sum-head-a.yaml",
    } <= set(files)
    assert "children/configmap-sum-training.yaml" in files
    assert yaml.safe_load(files["versions.yaml"])["kubernetes"].startswith("v1.")
    job = yaml.safe_load(files["job.yaml"])
    assert job["spec"]["cluster"]["env"] == [
        {"name": "DB_PASSWORD", "value": "***"},
        {"name": "LEVEL", "value": "info"},
    ]
    assert "logs/program.log: no program runs" in files["errors.txt"]
    assert not [
        path for path, text in files.items() if PASSWORD in text or "staple-1234" in text or "do-not-read" in text
    ]


def test_a_missing_job_is_reported(rlt: Rlt, tmp_path: Path) -> None:
    target = tmp_path / "report.tar.gz"
    assert "RLTrainingJob sum does not exist" in rlt("bundle", "sum", "--file", str(target), expected=1).stderr
    assert not target.exists()
