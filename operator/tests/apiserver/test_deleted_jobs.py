"""`rlt usage` counts jobs that have been deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.command_line import Rlt
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_core.usage_record import RECORD_LABEL, name_record
from rlt_e2e.api_objects import delete_object

pytestmark = pytest.mark.apiserver

OPERATOR_NAMESPACE = "default"
USAGE = {
    "acceleratorSeconds": 7200,
    "by": {"update": 5400, "idle": 1800},
    "days": [{"day": "2026-01-02", "by": {"update": 5400, "idle": 1800}}],
    "observedTime": "2026-01-02T03:00:00Z",
    "accelerators": 0,
}


@pytest.fixture
def recording_operator(kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Operator]:
    """An operator with --usage-records, outside the cluster."""
    options = (f"--usage-records={OPERATOR_NAMESPACE}",)
    operator = Operator(kubernetes.cluster.kubeconfig, tmp_path / "operator.log", options)
    operator.start()
    yield operator
    operator.stop()
    kubernetes.delete_jobs()


def use(kubernetes: Kubernetes, namespace: str, name: str) -> None:
    """A suspended job that has used accelerators."""
    kubernetes.create_job(namespace, {**o.SPEC, "suspend": True}, name)
    kubernetes.patch(namespace, "rltrainingjob", name, {"status": {"usage": USAGE}}, status=True)


def read_bills(rlt: Rlt, *options: str) -> list[tuple[Any, ...]]:
    done = rlt("usage", f"--operator-namespace={OPERATOR_NAMESPACE}", "-o", "json", *options)
    assert "cannot be read" not in done.stderr
    return [(each["group"], each["jobs"], each["acceleratorSeconds"]) for each in json.loads(done.stdout)]


def test_the_usage_of_deleted_jobs_is_counted(
    kubernetes: Kubernetes, recording_operator: Operator, rlt: Rlt, namespace: str
) -> None:
    for name in ("sum", "other"):
        use(kubernetes, namespace, name)
    bills = [(f"{namespace}/other", 1, 7200), (f"{namespace}/sum", 1, 7200)]
    assert read_bills(rlt) == bills
    delete_object(kubernetes.cluster, namespace, "rltrainingjob", "sum")
    record = name_record(namespace)
    eventually("a record", lambda: kubernetes.get(OPERATOR_NAMESPACE, "configmap", record) is not None)
    assert read_bills(rlt) == bills
    recording_operator.stop()
    recording_operator.start()
    use(kubernetes, namespace, "third")
    for name in ("other", "third"):
        delete_object(kubernetes.cluster, namespace, "rltrainingjob", name)
    expected = (namespace, 3, 3 * 7200)
    eventually("all are recorded", lambda: expected in read_bills(rlt, "-A", "--by", "namespace"))
    assert read_bills(rlt, "--since", "7d") == []
    found = kubernetes.get(OPERATOR_NAMESPACE, "configmap", record)
    assert found
    assert found["metadata"]["labels"] == {RECORD_LABEL: namespace}


def test_a_user_who_cannot_read_the_record_sees_existing_jobs_and_why(
    kubernetes: Kubernetes, rlt: Rlt, namespace: str, tmp_path: Path
) -> None:
    use(kubernetes, namespace, "sum")
    kubernetes.kubectl("create", "serviceaccount", "tenant", "-n", namespace)
    account = f"--serviceaccount={namespace}:tenant"
    verbs = ("--verb=get,list", "--resource=rltrainingjobs")
    kubernetes.kubectl("create", "role", "tenant", "-n", namespace, *verbs)
    kubernetes.kubectl("create", "rolebinding", "tenant", "-n", namespace, "--role=tenant", account)
    config = yaml.safe_load(kubernetes.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kubernetes.kubectl("create", "token", "tenant", "-n", namespace).strip()}
    kubeconfig = tmp_path / "tenant.yaml"
    kubeconfig.write_text(yaml.safe_dump(config))
    done = Rlt(kubeconfig, namespace)("usage", f"--operator-namespace={OPERATOR_NAMESPACE}", "-o", "json")
    (bill,) = json.loads(done.stdout)
    assert bill["group"] == f"{namespace}/sum"
    assert f"without deleted jobs, whose record in namespace {OPERATOR_NAMESPACE} cannot be read" in done.stderr
    kubernetes.delete_jobs()
