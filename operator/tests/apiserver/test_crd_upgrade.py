"""A job that was stored with the previous committed CRD and its defaults, after an upgrade to the current CRD."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_api.validation.validate import validate_job

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "01-arithmetic-grpo.yaml"
PREVIOUS, CURRENT = Path(__file__).with_name("previous_crd.yaml"), ROOT / "crds" / "rltrainingjobs.rlt.dev.yaml"
NAME = "arithmetic-grpo"


def apply_crd(kubernetes: Kubernetes, crd: Path, *, has_defaults: bool) -> None:
    """Apply a CRD and wait until the API server uses it."""
    kubernetes.kubectl("apply", "--server-side", "--force-conflicts", "-f", crd)

    def served() -> bool:
        job = kubernetes.kubectl("create", "--dry-run=server", "-n", "default", "-f", EXAMPLE, "-o", "json")
        return ("topP" in json.loads(job)["spec"].get("rollout", {})) is has_defaults

    eventually(f"the API server uses {crd.name}", served)


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
"""As the operator wrote it: longer than the current bounds, and with a list that the CRD replaced as a whole."""


@pytest.fixture
def stored(kubernetes: Kubernetes, namespace: str) -> str:
    """A namespace with the example, stored with the previous CRD before the upgrade."""
    try:
        apply_crd(kubernetes, PREVIOUS, has_defaults=True)
        kubernetes.kubectl("apply", "-n", namespace, "-f", EXAMPLE)
        status = {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": NAME}}
        options = ("--server-side", "--subresource=status", "--field-manager=rlt-operator", "-n", namespace)
        kubernetes.kubectl("apply", *options, "-f", "-", input=json.dumps({**status, "status": STATUS}))
    finally:
        apply_crd(kubernetes, CURRENT, has_defaults=False)
    return namespace


def describe(kubernetes: Kubernetes, namespace: str) -> str:
    return kubernetes.kubectl("get", "rltrainingjobs,events", "-n", namespace, "-o", "yaml")[-4000:]


def test_the_stored_job_is_valid(kubernetes: Kubernetes, stored: str) -> None:
    job = kubernetes.get(stored, "rltrainingjob", NAME)
    assert job
    assert job["spec"]["rollout"]["topP"] == 1.0, "a default of the previous CRD"
    assert validate_job(NAME, job["spec"]).findings == ()


def test_the_stored_job_is_accepted(kubernetes: Kubernetes, stored: str, operator: Operator) -> None:
    eventually(
        "a RayCluster",
        lambda: kubernetes.get(stored, "raycluster", NAME),
        describe=lambda: describe(kubernetes, stored),
    )
    eventually("Accepted", lambda: kubernetes.condition(stored, "Accepted", NAME)[0] == "True")


def test_the_stored_status_is_read_and_merged_by_key(kubernetes: Kubernetes, stored: str, operator: Operator) -> None:
    eventually(
        "a RayCluster",
        lambda: kubernetes.get(stored, "raycluster", NAME),
        describe=lambda: describe(kubernetes, stored),
    )
    eventually("all conditions", lambda: kubernetes.condition(stored, "Stalled", NAME)[0])
    conditions = kubernetes.status(stored, NAME)["conditions"]
    assert len({each["type"] for each in conditions}) == len(conditions) > len(STATUS["conditions"])
    assert max(len(each["message"]) for each in conditions) < 4096
    accepted = next(each for each in conditions if each["type"] == "Accepted")
    assert accepted["lastTransitionTime"] == CONDITION["lastTransitionTime"]


def test_an_operator_names_the_fields_that_an_old_crd_lacks(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    try:
        apply_crd(kubernetes, PREVIOUS, has_defaults=True)
        kubernetes.kubectl("apply", "-n", namespace, "-f", EXAMPLE)
        eventually(
            "RequestFailed",
            lambda: kubernetes.condition(namespace, "Reconciling", NAME)[1] == "RequestFailed",
            describe=lambda: operator.log.read_text()[-3000:],
        )
        message = kubernetes.status(namespace, NAME)["message"]
        assert "field not declared in schema" in message
        assert "CustomResourceDefinition rltrainingjobs.rlt.dev is older than the operator: it lacks spec." in message
        assert "kubectl apply --server-side" in message
        assert operator.fetch("/readyz") == ""
        assert 'rlt_operator_crd_missing_fields{crd="rltrainingjobs.rlt.dev"} 0' not in operator.fetch("/metrics")
        assert "is older than the operator" in operator.log.read_text()
    finally:
        apply_crd(kubernetes, CURRENT, has_defaults=False)
    ready = "ok\n"
    eventually("ready", lambda: operator.fetch("/readyz") == ready, describe=lambda: operator.log.read_text()[-3000:])
    eventually("a RayCluster", lambda: kubernetes.get(namespace, "raycluster", NAME))
    eventually("no failure", lambda: kubernetes.condition(namespace, "Reconciling", NAME)[1] == "Progressing")


@pytest.mark.parametrize("how", [["--server-side", "--force-conflicts"], []])
def test_its_file_can_be_applied_again(kubernetes: Kubernetes, stored: str, how: list[str]) -> None:
    kubernetes.kubectl("apply", *how, "-n", stored, "-f", EXAMPLE)
    job = kubernetes.get(stored, "rltrainingjob", NAME)
    assert job
    assert job["spec"]["rewards"] == [{"name": "exact"}], "lists equal those in the file, without the previous defaults"
    assert job["spec"]["rollout"]["topP"] == 1.0


@pytest.mark.parametrize("path", ["/spec/cluster/workers/0/replicas", "/spec/rewards/0/weight", "/spec/training/seed"])
def test_an_immutable_field_stays_immutable(kubernetes: Kubernetes, stored: str, path: str) -> None:
    patch = json.dumps([{"op": "replace", "path": path, "value": 3}])
    with pytest.raises(ValueError, match="is immutable"):
        kubernetes.kubectl("patch", "rltrainingjob", NAME, "-n", stored, "--type=json", "-p", patch)
