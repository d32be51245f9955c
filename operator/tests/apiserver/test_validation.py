"""The table of contradictions (api/tests/cases.py) in the real API server: with the CRD alone, then with the webhook.

Also how the API server handles nulls, integral floats and unknown fields.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from apiserver.in_cluster import Kubernetes, Webhook
from cases import CASES, Case
from job_specs import BUILTIN

from rlt_api.schema.crd import GROUP, KIND, VERSION
from rlt_api.validation.validate import validate_manifest
from rlt_e2e.fuzz_api import ApiResponse, ApiServer

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def api(kubernetes: Kubernetes) -> ApiServer:
    """A client for the HTTP API of the API server."""
    return ApiServer(kubernetes.cluster.kubeconfig)


def manifest(spec: Any, name: str = "sum", **more: Any) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": name}, "spec": spec, **more}


def with_value(path: str, value: Any) -> dict[str, Any]:
    """The valid job with another value at a path."""
    spec = copy.deepcopy(dict(BUILTIN))
    block = spec
    *parents, last = path.split(".")
    for key in parents:
        block = block.setdefault(key, {})
    block[last] = value
    return spec


def contradictions(answer: ApiResponse) -> list[str]:
    """Return the fields that the CRD rejects, without those whose rules were not checked."""
    return [field for field, message in answer.causes if "rules were not checked" not in message]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_crd_rejects_what_cel_can_express(api: ApiServer, case: Case) -> None:
    answer = api.dry_run(manifest(case.spec, case.name))
    assert bool(contradictions(answer)) is case.cel, answer.message
    assert all(f"{case.at}.".startswith(f"{at}.".replace("<nil>.", "")) for at in contradictions(answer))


@pytest.mark.parametrize(
    ("path", "value", "accepted"),
    [
        ("cluster.head.resources", {"cpu": 2, "memory": 2**33}, True),
        ("cluster.head.resources", {"cpu": 2.0, "memory": "8Gi"}, True),
        ("cluster.head.resources", {"cpu": 0.5, "memory": "8Gi"}, False),
        ("cluster.head.resources", {"cpu": -1, "memory": "8Gi"}, False),
        ("cluster.head.resources", {"cpu": True, "memory": "8Gi"}, False),
        ("cluster.head.resources", {"cpu": 10**25, "memory": "8Gi"}, False),
        ("cluster.head.resources", {"cpu": 2, "memory": 2**33, "sharedMemory": 2**30}, True),
        ("cluster.head.resources", {"cpu": 2, "memory": 2**30, "sharedMemory": 2**33}, False),
        ("rewards", [None], False),
        ("suspend", None, True),
        ("cluster.head", None, True),
        ("training.totalSteps", True, False),
        ("training.totalSteps", "10", False),
        ("training.totalSteps", 10**25, False),
        ("training.learningRate", 1, True),
        ("training.learningRate", 10.0000001, False),
        ("training.learningRate", 1e-320, True),
        ("data.chatTemplate", "ä" * 65536, True),
        ("data.chatTemplate", "ä" * 65537, False),
        ("data.chatTemplate", "", False),
        ("cluster.head.nodeSelector", {"a": None}, True),
        ("cluster.head.podTemplate", {"spec": {"hostname": None, "nodeSelector": {}}}, True),
        ("storage.mountPath", "/a\n", True),
        ("rayVersion", "2.60.0", False),
    ],
)
def test_api_server_and_offline_validation_agree_on_types_and_bounds(
    api: ApiServer, path: str, value: Any, accepted: bool
) -> None:
    job = manifest(with_value(path, value))
    assert (api.dry_run(job).accepted, not validate_manifest(job, {})) == (accepted, accepted)


def test_the_crd_alone_accepts_nul_and_deep_nesting(api: ApiServer) -> None:
    """The offline validator and the webhook reject what the CRD accepts here."""
    deep: Any = 1
    for _ in range(150):
        deep = {"a": deep}
    for path, value in (("cluster.image", "a\0"), ("cluster.head.podTemplate", deep)):
        job = manifest(with_value(path, value))
        assert api.dry_run(job).accepted
        assert [each.rule for each in validate_manifest(job, {})] == ["json"]


@pytest.mark.parametrize(("path", "value"), [("trainning", 1), ("trainning", None), ("training.train_batch_size", 8)])
def test_the_client_selects_whether_an_unknown_field_is_an_error_a_warning_or_dropped(
    api: ApiServer, path: str, value: Any
) -> None:
    job = manifest(with_value(path, value))
    strict, warn, ignore = (api.dry_run(job, validation=each) for each in ("Strict", "Warn", "Ignore"))
    assert f'unknown field "spec.{path}"' in strict.message
    assert warn.accepted
    assert f"spec.{path}" in warn.warning
    assert ignore.accepted
    assert ignore.warning == ""
    assert "did you mean" in validate_manifest(job, {})[0].fix


def test_an_integer_with_a_fraction(api: ApiServer) -> None:
    """The schema accepts 8.0 as an integer, CEL does not. kubectl sends 8."""
    for field, accepted in (("ppoEpochs", True), ("ppoMiniBatchSize", False)):
        job = manifest(with_value(f"training.{field}", 8.0))
        assert api.dry_run_text(json.dumps(job)).accepted is accepted
        assert api.dry_run(job).accepted
        assert not validate_manifest(job, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_webhook_rejects_what_the_crd_accepts(webhook: Webhook, api: ApiServer, case: Case) -> None:
    answer = api.dry_run(manifest(case.spec, case.name))
    assert not answer.accepted
    if "admission webhook" in answer.message:
        assert case.at in [at for at, _ in answer.causes]
        assert case.fix in answer.message
    else:
        assert answer.causes


def test_the_webhook_does_not_receive_dropped_fields(webhook: Webhook, api: ApiServer) -> None:
    """It is called after pruning. Only the annotation of kubectl apply contains the field (test_webhook.py)."""
    assert api.dry_run(manifest(with_value("trainning", 1)), validation="Ignore").accepted


@pytest.mark.parametrize("depth", [150, 900])
def test_the_webhook_responds_at_any_depth(webhook: Webhook, api: ApiServer, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    text = json.dumps(manifest(with_value("cluster.head.podTemplate", {"a": "deep"}))).replace('"deep"', deep)
    answer = api.dry_run_text(text)
    assert answer.status == 422
    assert "is nested deeper than" in answer.message
