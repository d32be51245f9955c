"""A job that was stored with an earlier CRD, after an upgrade to the current CRD."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_api.validation.validate import validate_job
from rlt_e2e.ports import free_port
from rlt_operator.key_pair import create_key_pair

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
EXAMPLE = yaml.safe_load((ROOT / "examples" / "01-arithmetic-grpo.yaml").read_text())
NAME = EXAMPLE["metadata"]["name"]
CURRENT: dict[str, Any] = yaml.safe_load((ROOT / "crds" / "rltrainingjobs.rlt.dev.yaml").read_text())

ADDED = "ttlSecondsAfterFinished"
"""A field that the earlier CRD lacks."""
REMOVED = "momentum"
"""A field of spec.training that the current CRD lacks."""


def build_earlier_crd() -> dict[str, Any]:
    """The current CRD with the differences that docs/api-versions.md permits within a version of the API."""
    crd = copy.deepcopy(CURRENT)
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    spec = fields["spec"]["properties"]
    status = fields["status"]["properties"]
    del spec[ADDED]
    del status["resolvedSpec"]
    spec["training"]["properties"][REMOVED] = {"type": "number"}
    for text in (status["message"], status["conditions"]["items"]["properties"]["message"]):
        text["maxLength"] *= 4
    return crd


EARLIER = build_earlier_crd()


def build_job(**changes: Any) -> str:
    """The example with other fields of its spec, as JSON."""
    return json.dumps({**EXAMPLE, "spec": {**EXAMPLE["spec"], **changes}})


def apply_crd(kubernetes: Kubernetes, crd: dict[str, Any]) -> None:
    """Apply a CRD and wait until the API server uses it."""
    kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(crd))
    options = ("--dry-run=server", "--validate=false", "-n", "default", "-o", "json")

    def is_served() -> bool:
        job = kubernetes.kubectl("create", *options, "-f", "-", input=build_job(**{ADDED: 60}))
        return (ADDED in json.loads(job)["spec"]) is (crd is CURRENT)

    eventually("the API server uses the CRD", is_served)


CONDITION = {
    "type": "Accepted",
    "status": "True",
    "reason": "Valid",
    "message": "x" * 9000,
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
STATUS = {
    "phase": "Pending",
    "message": "x" * 9000,
    "conditions": [CONDITION, {**CONDITION, "type": "Running", "status": "False", "reason": "WaitingForCluster"}],
}
"""As an operator wrote it whose texts were longer than the current bounds."""


@pytest.fixture
def stored(kubernetes: Kubernetes, namespace: str) -> str:
    """A namespace with the example, stored with the earlier CRD and a field that the current one lacks."""
    try:
        store(kubernetes, namespace)
    finally:
        apply_crd(kubernetes, CURRENT)
    return namespace


@contextmanager
def stopped(operator: Operator) -> Iterator[None]:
    """No operator runs: it would fail an invalid job before `store` has stored that the job is accepted.

    The operator that is then launched is ready only with the current CRD.
    """
    operator.stop()
    yield
    operator.launch()


def store(kubernetes: Kubernetes, namespace: str) -> None:
    """Store the job with the earlier CRD, which stays installed."""
    apply_crd(kubernetes, EARLIER)
    job = build_job(training={**EXAMPLE["spec"]["training"], REMOVED: 0.9})
    kubernetes.kubectl("apply", "-n", namespace, "-f", "-", input=job)
    status = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": NAME}}
    options = ("--server-side", "--force-conflicts", "--subresource=status", "-n", namespace)
    kubernetes.kubectl("apply", *options, "-f", "-", input=json.dumps({**status, "status": STATUS}))
    assert read_spec(kubernetes, namespace)["training"][REMOVED] == 0.9


def read_spec(kubernetes: Kubernetes, namespace: str) -> dict[str, Any]:
    job = kubernetes.get(namespace, "rltrainingjob", NAME)
    assert job
    spec: dict[str, Any] = job["spec"]
    return spec


def describe(kubernetes: Kubernetes, namespace: str) -> str:
    return kubernetes.kubectl("get", "rltrainingjobs,events", "-n", namespace, "-o", "yaml")[-4000:]


def test_the_stored_job_is_valid(kubernetes: Kubernetes, stored: str) -> None:
    spec = read_spec(kubernetes, stored)
    assert spec == EXAMPLE["spec"], "without the removed field"
    assert validate_job(NAME, spec).findings == ()


def test_the_stored_job_is_accepted_and_its_status_is_read(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    with stopped(operator):
        try:
            store(kubernetes, namespace)
        finally:
            apply_crd(kubernetes, CURRENT)
    eventually(
        "a RayCluster",
        lambda: kubernetes.get(namespace, "raycluster", NAME),
        describe=lambda: describe(kubernetes, namespace),
    )
    eventually("all conditions", lambda: kubernetes.condition(namespace, "Reconciling", NAME)[0])
    conditions = kubernetes.status(namespace, NAME)["conditions"]
    assert len({each["type"] for each in conditions}) == len(conditions) > len(STATUS["conditions"])
    assert max(len(each["message"]) for each in conditions) < 4096
    accepted = next(each for each in conditions if each["type"] == "Accepted")
    assert (accepted["status"], accepted["lastTransitionTime"]) == ("True", CONDITION["lastTransitionTime"])


def test_a_job_that_the_operator_cannot_read_starts_when_the_crd_is_current(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    """The upgrade changes what the API server returns for the job, but not its resourceVersion."""
    try:
        with stopped(operator):
            store(kubernetes, namespace)
        eventually(
            "the operator reports the field",
            lambda: f"spec.training.{REMOVED}" in kubernetes.status(namespace, NAME)["message"],
            describe=lambda: describe(kubernetes, namespace),
        )
    finally:
        apply_crd(kubernetes, CURRENT)
    eventually(
        "a RayCluster",
        lambda: kubernetes.get(namespace, "raycluster", NAME),
        describe=lambda: describe(kubernetes, namespace),
    )


def test_an_operator_names_the_fields_that_an_old_crd_lacks(
    kubernetes: Kubernetes, operator: Operator, namespace: str, tmp_path: Path
) -> None:
    pair = create_key_pair(frozenset({"127.0.0.1"}), now=datetime.now(UTC))
    (tmp_path / "tls.crt").write_text(pair.certificate)
    (tmp_path / "tls.key").write_text(pair.key)
    options = (f"--port={free_port()}", f"--certificates={tmp_path}")
    webhook = Operator(kubernetes.cluster.kubeconfig, tmp_path / "log", options, command="webhook")
    webhook.start()
    try:
        apply_crd(kubernetes, EARLIER)
        kubernetes.kubectl("apply", "-n", namespace, "-f", "-", input=build_job())
        eventually(
            "RequestFailed",
            lambda: kubernetes.condition(namespace, "Reconciling", NAME)[1] == "RequestFailed",
            describe=lambda: operator.log.read_text()[-3000:],
        )
        message = kubernetes.status(namespace, NAME)["message"]
        assert 'unknown field "status.resolvedSpec"' in message
        lacks = f"CustomResourceDefinition rltrainingjobs.rlt.dev is older than the operator: it lacks spec.{ADDED}, "
        assert f"{lacks}status.resolvedSpec." in message
        assert "kubectl apply --server-side" in message
        assert operator.fetch("/readyz") == ""
        assert webhook.fetch("/readyz") == "ok\n", "the API server still has endpoints for reviews"
        assert 'rlt_operator_crd_missing_fields{crd="rltrainingjobs.rlt.dev"} 2' in operator.fetch("/metrics")
        assert "is older than the operator" in operator.log.read_text()
    finally:
        webhook.stop()
        apply_crd(kubernetes, CURRENT)
    ready = "ok\n"
    eventually("ready", lambda: operator.fetch("/readyz") == ready, describe=lambda: operator.log.read_text()[-3000:])
    eventually("a RayCluster", lambda: kubernetes.get(namespace, "raycluster", NAME))
    eventually("no failure", lambda: kubernetes.condition(namespace, "Reconciling", NAME)[1] == "Progressing")


@pytest.mark.parametrize("how", [["--server-side", "--force-conflicts"], []])
def test_its_file_can_be_applied_again(kubernetes: Kubernetes, stored: str, how: list[str]) -> None:
    kubernetes.kubectl("apply", *how, "-n", stored, "-f", "-", input=build_job(**{ADDED: 60}))
    assert read_spec(kubernetes, stored) == {**EXAMPLE["spec"], ADDED: 60}


@pytest.mark.parametrize("path", ["/spec/cluster/workers/0/replicas", "/spec/rewards/0/weight", "/spec/training/seed"])
def test_an_immutable_field_stays_immutable(kubernetes: Kubernetes, stored: str, path: str) -> None:
    patch = json.dumps([{"op": "add", "path": path, "value": 3}])
    with pytest.raises(ValueError, match="is immutable"):
        kubernetes.kubectl("patch", "rltrainingjob", NAME, "-n", stored, "--type=json", "-p", patch)
