"""The default and the required RLRuntime of a namespace."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import BUILTIN, merged

from rlt_api.spec.runtime_policy import (
    DEFAULT_RUNTIME_LABEL,
    REQUIRE_RUNTIME_LABEL,
    RuntimePolicy,
    add_default_runtime,
    parse_runtime_policy,
)
from rlt_api.validation.validate import validate_job, validate_manifest

SHORT = {"model": {"fromSeed": {}}, "data": {"preset": "arithmetic"}, "training": {"totalSteps": 8}}
RUNTIME = {
    "images": {"cpu": "registry.example/trainer:cpu"},
    "nodePools": [{"name": "small", "resources": {"cpu": "2", "memory": "8Gi"}}],
    "limits": [{"field": "spec.training.totalSteps", "max": 10}],
}


def manifest(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "sum"}, "spec": spec}


@pytest.mark.parametrize(
    ("labels", "cluster", "expected"),
    [
        ({}, RuntimePolicy(), RuntimePolicy()),
        ({}, RuntimePolicy("a", required=True), RuntimePolicy("a", required=True)),
        ({DEFAULT_RUNTIME_LABEL: "b"}, RuntimePolicy("a"), RuntimePolicy("b")),
        ({DEFAULT_RUNTIME_LABEL: ""}, RuntimePolicy("a", required=True), RuntimePolicy(None, required=True)),
        ({REQUIRE_RUNTIME_LABEL: "true"}, RuntimePolicy(), RuntimePolicy(required=True)),
        ({REQUIRE_RUNTIME_LABEL: "false"}, RuntimePolicy(required=True), RuntimePolicy()),
        ({REQUIRE_RUNTIME_LABEL: "False"}, RuntimePolicy(), RuntimePolicy(required=True)),
        ({REQUIRE_RUNTIME_LABEL: ""}, RuntimePolicy(), RuntimePolicy(required=True)),
    ],
)
def test_a_namespaces_labels_override_the_clusters_policy(
    labels: dict[str, str], cluster: RuntimePolicy, expected: RuntimePolicy
) -> None:
    assert parse_runtime_policy(labels, cluster) == expected


def test_the_default_runtime_completes_and_limits_a_job() -> None:
    policy = RuntimePolicy("small")
    assert validate_manifest(manifest(SHORT), {"small": RUNTIME}, policy) == ()
    assert validate_manifest(manifest(SHORT), {"small": RUNTIME}) != ()
    long = merged(SHORT, {"training.totalSteps": 11})
    assert [each.rule for each in validate_manifest(manifest(long), {"small": RUNTIME}, policy)] == ["runtime-limit"]


def test_the_runtime_that_a_job_names_replaces_the_default() -> None:
    named = {**SHORT, "runtimeRef": {"name": "other"}}
    assert add_default_runtime(named, RuntimePolicy("small")) == named
    assert validate_manifest(manifest(named), {"small": {}, "other": RUNTIME}, RuntimePolicy("small")) == ()


def test_a_default_runtime_that_is_not_available_may_give_missing_fields() -> None:
    assert validate_manifest(manifest(SHORT), {}, RuntimePolicy("small")) == ()
    assert validate_manifest(manifest(SHORT), {}, RuntimePolicy(unknown=True)) == ()
    wrong = merged(SHORT, {"training.learningRate": "fast"})
    assert validate_manifest(manifest(wrong), {}, RuntimePolicy("small")) != ()


def test_a_required_runtime() -> None:
    (finding,) = validate_job("sum", BUILTIN, None, RuntimePolicy(required=True)).findings
    assert (finding.field, finding.rule) == ("spec.runtimeRef", "runtime-required")
    named = {**BUILTIN, "runtimeRef": {"name": "small"}}
    assert validate_job("sum", named, RUNTIME, RuntimePolicy(required=True)).findings == ()
    assert validate_job("sum", BUILTIN, None, RuntimePolicy("small", required=True)).findings == ()
