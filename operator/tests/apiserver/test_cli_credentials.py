"""A credential expires while `rlt` waits: `rlt` reads a new one from the kubeconfig's plugin or file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.forwarder import Forwarder
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

pytestmark = pytest.mark.apiserver

API = "client.authentication.k8s.io/v1"


def token(kubernetes: Kubernetes, namespace: str) -> str:
    """The token of a new service account `user`. Deleting the previous account invalidates its tokens."""
    kubernetes.kubectl("delete", "serviceaccount", "user", "-n", namespace, "--ignore-not-found")
    kubernetes.kubectl("create", "serviceaccount", "user", "-n", namespace)
    return kubernetes.kubectl("create", "token", "user", "-n", namespace).strip()


def kubeconfig(file: Path, like: Path, user: dict[str, Any]) -> Path:
    config = yaml.safe_load(like.read_text())
    config["users"][0]["user"] = user
    file.write_text(yaml.safe_dump(config))
    return file


def test_wait_continues_with_the_next_credential(
    kubernetes: Kubernetes, rlt: Rlt, job_file: str, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    rlt("submit", job_file)
    user = f"--serviceaccount={namespace}:user"
    kubernetes.kubectl("create", "rolebinding", "user", "--clusterrole=admin", user, "-n", namespace)
    role = ("create", "role", "jobs", "--verb=get,list,watch", "--resource=rltrainingjobs.rlt.dev", "-n", namespace)
    kubernetes.kubectl(*role)
    kubernetes.kubectl("create", "rolebinding", "jobs", "--role=jobs", user, "-n", namespace)
    first = token(kubernetes, namespace)
    current = tmp_path / "token"
    current.write_text(first)
    response = json.dumps({"apiVersion": API, "kind": "ExecCredential", "status": {"token": "TOKEN"}})
    script = f"sed \"s/TOKEN/$(cat {current})/\" <<< '{response}'"
    plugin = {"apiVersion": API, "command": "bash", "args": ["-c", script], "interactiveMode": "Never"}
    users: dict[str, dict[str, Any]] = {"file": {"tokenFile": str(current)}, "plugin": {"exec": plugin}}
    with Forwarder(kubernetes.cluster.kubeconfig) as forwarder:
        by = forwarder.kubeconfig(tmp_path)
        waiting = [
            Rlt(kubeconfig(tmp_path / name, by, user), namespace).start("wait", "sum", "--for", "Suspended")
            for name, user in users.items()
        ]
        for each in waiting:
            assert each.stderr
            assert each.stderr.readline().startswith("waiting for Suspended: ")
        forwarder.disconnect()
        current.write_text(token(kubernetes, namespace))
        old = Rlt(kubeconfig(tmp_path / "old", kubernetes.cluster.kubeconfig, {"token": first}), namespace)
        eventually("the first token is rejected", lambda: is_rejected(old))
        forwarder.connect()
        rlt("suspend", "sum")
        assert [each.wait(timeout=300) for each in waiting] == [0, 0]


def is_rejected(rlt: Rlt) -> bool:
    with rlt.start("get", "sum") as running:
        _, messages = running.communicate(timeout=300)
    return "The API server rejected your credentials" in messages
