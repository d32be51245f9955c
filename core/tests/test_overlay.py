"""Merging the user's podTemplate into the operator's pod template."""

from __future__ import annotations

import copy
from typing import Any

import observed as o
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlt_core.children.overlay import merge_overlay
from rlt_core.children.pod_template import build_template_dry_runs
from rlt_core.children.raycluster import build_ray_cluster

BASE: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "ray-head",
                "image": "ours",
                "args": ["a", "b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {}}}],
                "volumeMounts": [{"name": "storage", "mountPath": "/mnt/rlt"}],
            }
        ],
        "volumes": [{"name": "storage", "emptyDir": {}}],
        "tolerations": [{"key": "gpu"}],
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
    }
}


def container(**change: Any) -> dict[str, Any]:
    merged = merge_overlay(BASE, {"spec": {"containers": [{"name": "ray-head", **change}]}})
    (only,) = merged["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_an_empty_overlay_changes_nothing() -> None:
    assert merge_overlay(BASE, {}) == BASE


def test_objects_are_merged_field_by_field() -> None:
    merged = merge_overlay(BASE, {"metadata": {"labels": {"team": "a"}}, "spec": {"securityContext": {"runAsUser": 7}}})
    assert merged["metadata"] == {"labels": {"team": "a"}}
    assert merged["spec"]["securityContext"] == {"runAsUser": 7, "runAsNonRoot": True}


def test_null_removes_a_field() -> None:
    merged = merge_overlay(BASE, {"spec": {"securityContext": {"runAsUser": None}, "hostIPC": None}})
    assert merged["spec"]["securityContext"] == {"runAsNonRoot": True}
    assert "hostIPC" not in merged["spec"]


def test_containers_are_merged_by_name() -> None:
    assert container(image="theirs")["image"] == "theirs"
    assert container(image="theirs")["args"] == ["a", "b"]
    merged = merge_overlay(BASE, {"spec": {"containers": [{"name": "sidecar", "image": "s"}]}})
    assert [each["name"] for each in merged["spec"]["containers"]] == ["ray-head", "sidecar"]


def test_variables_are_replaced_in_place() -> None:
    given = [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
    assert container(env=given)["env"] == [{"name": "A", "value": "1"}, *given]


def test_volumes_are_replaced() -> None:
    claim = {"name": "storage", "persistentVolumeClaim": {"claimName": "mine"}}
    assert merge_overlay(BASE, {"spec": {"volumes": [claim]}})["spec"]["volumes"] == [claim]


def test_mounts_are_merged_by_path() -> None:
    mounts = [{"name": "other", "mountPath": "/mnt/rlt"}, {"name": "other", "mountPath": "/x"}]
    assert container(volumeMounts=mounts)["volumeMounts"] == mounts


def test_tolerations_are_appended() -> None:
    merged = merge_overlay(BASE, {"spec": {"tolerations": [{"key": "night"}]}})
    assert merged["spec"]["tolerations"] == [{"key": "gpu"}, {"key": "night"}]


@pytest.mark.parametrize("args", [["c"], []])
def test_other_lists_are_replaced(args: list[str]) -> None:
    assert container(args=args)["args"] == args


def test_a_malformed_pod_template_is_kept_for_the_api_server_to_reject() -> None:
    assert merge_overlay(BASE, {"spec": {"containers": "many"}})["spec"]["containers"] == "many"
    assert merge_overlay(BASE, {"spec": {"containers": [7]}})["spec"]["containers"] == [7]
    assert merge_overlay(BASE, {"spec": 7})["spec"] == 7


names = st.sampled_from(["metadata", "spec", "labels", "containers", "name", "env", "volumes", "tolerations", "x"])
json = st.recursive(
    st.none() | st.booleans() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(names, json))
def test_any_pod_template_makes_a_manifest(template: dict[str, Any]) -> None:
    cluster = {**o.COMMAND_SPEC["cluster"], "head": {"podTemplate": template}}
    job = o.job({**o.COMMAND_SPEC, "cluster": cluster})
    assert job.spec
    (dry_run,) = build_template_dry_runs(job, job.spec) if job.spec.cluster.head.pod_template else (None,)
    rendered = build_ray_cluster(job, job.spec)["spec"]["headGroupSpec"]["template"]
    assert dry_run is None or dry_run.manifest["template"] == rendered


def test_the_inputs_are_not_modified() -> None:
    base = copy.deepcopy(BASE)
    overlay = {"spec": {"containers": [{"name": "ray-head", "env": [{"name": "C"}]}]}}
    kept = copy.deepcopy(overlay)
    merge_overlay(base, overlay)
    assert (base, overlay) == (BASE, kept)
