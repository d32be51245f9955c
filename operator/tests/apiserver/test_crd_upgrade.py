"""A job that was stored with the previous committed CRD and its defaults, after an upgrade to the current CRD."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from apiserver.in_cluster import Kubernetes, Operator, eventually

from rlt_api.validation import validate_job

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


@pytest.fixture
def stored(kubernetes: Kubernetes, namespace: str) -> str:
    """A namespace with the example, stored with the previous CRD before the upgrade."""
    try:
        apply_crd(kubernetes, PREVIOUS, has_defaults=True)
        kubernetes.kubectl("apply", "-n", namespace, "-f", EXAMPLE)
    finally:
        apply_crd(kubernetes, CURRENT, has_defaults=False)
    return namespace


def test_the_stored_job_is_valid(kubernetes: Kubernetes, stored: str) -> None:
    job = kubernetes.get(stored, "rltrainingjob", NAME)
    assert job
    assert job["spec"]["rollout"]["topP"] == 1.0, "a default of the previous CRD"
    assert validate_job(NAME, job["spec"]).findings == ()


def test_the_stored_job_is_accepted(kubernetes: Kubernetes, stored: str, operator: Operator) -> None:
    eventually("a RayCluster", lambda: kubernetes.get(stored, "raycluster", NAME))
    eventually("Accepted", lambda: kubernetes.condition(stored, "Accepted", NAME)[0] == "True")


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
