"""A user's part of a pod template, laid over the operator's."""

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

BELOW: dict[str, Any] = {
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
    merged = merge_overlay(BELOW, {"spec": {"containers": [{"name": "ray-head", **change}]}})
    (only,) = merged["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_nothing_changes_nothing() -> None:
    assert merge_overlay(BELOW, {}) == BELOW


def test_objects_are_merged_field_by_field() -> None:
    merged = merge_overlay(
        BELOW, {"metadata": {"labels": {"team": "a"}}, "spec": {"securityContext": {"runAsUser": 7}}}
    )
    assert merged["metadata"] == {"labels": {"team": "a"}}
    assert merged["spec"]["securityContext"] == {"runAsUser": 7, "runAsNonRoot": True}


def test_null_takes_a_field_away() -> None:
    merged = merge_overlay(BELOW, {"spec": {"securityContext": {"runAsUser": None}, "hostIPC": None}})
    assert merged["spec"]["securityContext"] == {"runAsNonRoot": True}
    assert "hostIPC" not in merged["spec"]


def test_containers_are_merged_by_name() -> None:
    assert container(image="theirs")["image"] == "theirs"
    assert container(image="theirs")["args"] == ["a", "b"]
    merged = merge_overlay(BELOW, {"spec": {"containers": [{"name": "sidecar", "image": "s"}]}})
    assert [each["name"] for each in merged["spec"]["containers"]] == ["ray-head", "sidecar"]


def test_variables_are_replaced_whole_and_keep_their_place() -> None:
    given = [{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
    assert container(env=given)["env"] == [{"name": "A", "value": "1"}, *given]


def test_a_volume_has_one_source() -> None:
    claim = {"name": "storage", "persistentVolumeClaim": {"claimName": "mine"}}
    assert merge_overlay(BELOW, {"spec": {"volumes": [claim]}})["spec"]["volumes"] == [claim]


def test_mounts_are_told_apart_by_their_path() -> None:
    mounts = [{"name": "other", "mountPath": "/mnt/rlt"}, {"name": "other", "mountPath": "/x"}]
    assert container(volumeMounts=mounts)["volumeMounts"] == mounts


def test_tolerations_are_appended() -> None:
    merged = merge_overlay(BELOW, {"spec": {"tolerations": [{"key": "night"}]}})
    assert merged["spec"]["tolerations"] == [{"key": "gpu"}, {"key": "night"}]


@pytest.mark.parametrize("args", [["c"], []])
def test_other_lists_are_taken_whole(args: list[str]) -> None:
    assert container(args=args)["args"] == args


def test_what_is_no_pod_template_is_passed_on_for_the_api_server_to_refuse() -> None:
    assert merge_overlay(BELOW, {"spec": {"containers": "many"}})["spec"]["containers"] == "many"
    assert merge_overlay(BELOW, {"spec": {"containers": [7]}})["spec"]["containers"] == [7]
    assert merge_overlay(BELOW, {"spec": 7})["spec"] == 7


words = st.sampled_from(["metadata", "spec", "labels", "containers", "name", "env", "volumes", "tolerations", "x"])
json = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(words, json))
def test_whatever_a_user_gives_makes_a_manifest(users: dict[str, Any]) -> None:
    cluster = {**o.COMMAND_SPEC["cluster"], "head": {"podTemplate": users}}
    job = o.job({**o.COMMAND_SPEC, "cluster": cluster})
    assert job.spec
    (check,) = build_template_dry_runs(job, job.spec) if job.spec.cluster.head.pod_template else (None,)
    template = build_ray_cluster(job, job.spec)["spec"]["headGroupSpec"]["template"]
    assert check is None or check.manifest["template"] == template


def test_neither_part_is_changed() -> None:
    below, above = copy.deepcopy(BELOW), {"spec": {"containers": [{"name": "ray-head", "env": [{"name": "C"}]}]}}
    kept = copy.deepcopy(above)
    merge_overlay(below, above)
    assert (below, above) == (BELOW, kept)
