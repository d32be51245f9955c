"""The fields of a RayCluster CRD, and a job that needs a field that the CRD lacks.

The CRDs in this file are synthetic; KubeRay's own are in apiserver/test_kuberay_versions.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import observed as o
import pytest

from rlt_api.status.conditions import ConditionType, Reason
from rlt_core.children.raycluster import build_ray_cluster
from rlt_core.kuberay import KUBERAY_MINIMUM, KubeRay, describe_lost_fields, parse_kuberay
from rlt_e2e.cluster.kuberay_crds import VERSIONS
from rlt_operator.observation import Rejection
from rlt_operator.reconcile.plan import plan


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
KUBERAY = parse_kuberay(
    {
        "spec": {
            "versions": [
                {
                    "name": "v1",
                    "schema": {
                        "openAPIV3Schema": fields(
                            kind=TEXT,
                            metadata={"type": "object"},
                            spec=fields(
                                labels={"type": "object", "additionalProperties": TEXT},
                                ports={"type": "object", "additionalProperties": fields(port={"type": "integer"})},
                                groups={"type": "array", "items": fields(name=TEXT)},
                                extra={**fields(known=fields(a=TEXT)), "x-kubernetes-preserve-unknown-fields": True},
                            ),
                        )
                    },
                },
                {"name": "v1alpha1", "schema": {"openAPIV3Schema": fields(old=TEXT)}},
            ]
        }
    }
)


@pytest.mark.parametrize(
    ("manifest", "lost"),
    [
        ({"kind": "x", "metadata": {"generateName": "x"}, "spec": {}}, ()),
        ({"old": "x"}, ("old",)),
        ({"spec": {"new": {"a": {"b": 1}}}}, ("spec.new",)),
        ({"spec": {"labels": {"any.key/at-all": "x"}}}, ()),
        ({"spec": {"ports": {"web": {"port": 1, "name": "x"}}}}, ("spec.ports.web.name",)),
        ({"spec": {"groups": [{"name": "a"}, {"name": "b", "size": 1}]}}, ("spec.groups[1].size",)),
        ({"spec": {"extra": {"any": {"field": 1}, "known": {"b": 1}}}}, ("spec.extra.known.b",)),
        ({"spec": {"groups": "nonsense", "labels": None}}, ()),
    ],
)
def test_lost_fields_are_the_fields_that_the_schema_lacks(manifest: dict[str, Any], lost: tuple[str, ...]) -> None:
    assert KUBERAY.list_lost_fields(manifest) == lost


def test_a_crd_without_v1_has_no_fields() -> None:
    assert parse_kuberay({"spec": {"versions": []}}).list_lost_fields({"kind": "RayCluster", "metadata": {}}) == (
        "kind",
    )


def test_the_message_names_the_first_kuberay_with_the_field() -> None:
    pod = {"spec": {"headGroupSpec": {"template": {"spec": {"hostnameOverride": "head"}}}}}
    kuberay = KubeRay(frozenset(["spec", "spec.headGroupSpec", "spec.headGroupSpec.template"]))
    message = describe_lost_fields(kuberay, pod) or ""
    assert "(KubeRay 1.3 or older, by its fields) lacks spec.headGroupSpec.template.spec. " in message
    kuberay = KubeRay(kuberay.fields | {"spec.autoscalerOptions.version", "spec.headGroupSpec.template.spec"})
    message = describe_lost_fields(kuberay, pod) or ""
    assert "(KubeRay 1.4, by its fields) lacks" in message
    assert "spec.headGroupSpec.template.spec.hostnameOverride (since 1.5)" in message


def all_paths(value: object, path: str = "") -> set[str]:
    """The paths of a manifest, as in a CRD that has exactly its fields."""
    if isinstance(value, dict):
        return {path}.union(*(all_paths(child, f"{path}.{key}".lstrip(".")) for key, child in value.items()))
    return {path}.union(*(all_paths(child, f"{path}[]") for child in value)) if isinstance(value, list) else {path}


def just_enough() -> frozenset[str]:
    job = o.job()
    assert job.spec
    return frozenset(all_paths(build_ray_cluster(job, job.spec)))


def test_a_crd_with_every_field_gets_the_ray_cluster() -> None:
    decided = plan(replace(o.FRESH, kuberay=KubeRay(just_enough())), o.NOW)
    assert [manifest["kind"] for manifest in decided.apply] == [
        "ConfigMap",
        "Secret",
        "RayCluster",
    ]


@pytest.mark.parametrize("field", ["enableInTreeAutoscaling", "workerGroupSpecs[].rayStartParams"])
def test_a_job_waits_for_a_crd_with_the_field(field: str) -> None:
    decided = plan(replace(o.FRESH, kuberay=KubeRay(just_enough() - {f"spec.{field}"})), o.NOW)
    assert decided.apply == ()
    assert decided.requeue_after
    assert decided.status
    ready = next(c for c in decided.status.conditions if c.type == ConditionType.CLUSTER_READY)
    assert (ready.status, ready.reason) == ("False", Reason.KUBERAY_TOO_OLD)
    assert f"lacks spec.{field.replace('[]', '[0]')}. " in ready.message


def test_a_gang_of_kubernetes_is_rejected_by_name_where_kuberay_has_another_api() -> None:
    gang = {**o.COMMAND_SPEC, "scheduling": {"schedulerName": "default-scheduler", "gang": True}}
    fresh = replace(o.FRESH, job=o.after(replace(o.FRESH, job=o.job(gang))).job)
    assert fresh.job.spec
    fields = frozenset(all_paths(build_ray_cluster(fresh.job, fresh.job.spec)))
    newer = {field for field in fields if "workloadRef" not in field}
    newer |= {field.replace("workloadRef", "schedulingGroup") for field in fields if field.endswith("workloadRef")}
    newer.add("spec.networkPolicy")
    decided = plan(replace(fresh, kuberay=KubeRay(frozenset(newer))), o.NOW)
    assert decided.apply == ()
    assert decided.status
    ready = next(c for c in decided.status.conditions if c.type == ConditionType.CLUSTER_READY)
    assert (ready.status, ready.reason) == ("False", Reason.KUBERAY_TOO_NEW)
    assert "(KubeRay 1.7 or newer, by its fields) has spec.schedulingGroup" in ready.message
    assert "instead of spec.headGroupSpec.template.spec.workloadRef. Create the job again" in ready.message
    assert "spec.scheduling.schedulerName kai-scheduler" in ready.message


def test_a_rejection_by_kubernetes_is_quoted() -> None:
    decided = plan(
        replace(o.FRESH, kuberay=KubeRay(frozenset()), rejection=Rejection('unknown field "spec.nonsense"')), o.NOW
    )
    assert decided.status
    assert decided.status.message == 'unknown field "spec.nonsense"'


@pytest.mark.parametrize("page", ["README.md", "docs/kuberay.md"])
def test_the_minimum_version_is_documented_and_the_oldest_tested_one(page: str) -> None:
    assert VERSIONS[0] == KUBERAY_MINIMUM
    assert f"KubeRay {KUBERAY_MINIMUM}" in (Path(__file__).parents[2] / page).read_text()
