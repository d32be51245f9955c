"""A podTemplate that level restricted accepts changes nothing in the pods but the fields that the level allows."""

from __future__ import annotations

import copy
from typing import Any

import observed as o
from hypothesis import given, settings
from hypothesis import strategies as st
from pod_templates import ATTACKS, HARMLESS, for_container

from rlt_api.rules.pod_templates import RESERVED_VOLUMES
from rlt_api.status.job_status import RuntimeSnapshot
from rlt_core.children.overlay import merge_overlay
from rlt_core.children.raycluster import build_ray_cluster

ALLOWED = ("affinity", "topologySpreadConstraints", "hostAliases", "dnsConfig", "enableServiceLinks")
SAFE_SOURCES = {"persistentVolumeClaim", "emptyDir", "configMap", "secret", "downwardAPI", "projected"}


def render(head: Any, worker: Any) -> list[dict[str, Any]] | None:
    """The pod templates of head and workers. None if the job is invalid."""
    (group,) = o.SPEC["cluster"]["workers"]
    cluster = {**o.SPEC["cluster"], "head": {"podTemplate": head}, "workers": [{**group, "podTemplate": worker}]}
    spec = {**o.SPEC, "runtimeRef": {"name": "r"}, "cluster": cluster}
    job = o.job(spec, runtime=RuntimeSnapshot(name="r", generation=1, spec={}))
    if job.findings:
        return None
    assert job.spec
    built = build_ray_cluster(job, job.spec)["spec"]
    return [built["headGroupSpec"]["template"], built["workerGroupSpecs"][0]["template"]]


def remove_allowed(template: dict[str, Any], volumes: set[str], paths: set[str]) -> dict[str, Any]:
    """The template without the fields that level restricted allows. `volumes` and `paths` are the operator's."""
    left = copy.deepcopy(template)
    spec = left["spec"]
    for name in ALLOWED:
        spec.pop(name, None)
    for volume in spec["volumes"]:
        assert volume["name"] in volumes or set(volume) <= {"name"} | SAFE_SOURCES, volume
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] in volumes]
    for container in spec["containers"]:
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["mountPath"] in paths]
        assert not any("hostPort" in port for port in container.pop("ports", []))
        container.pop("workingDir", None)
    labels = left.get("metadata", {}).get("labels", {})
    left["metadata"]["labels"] = {key: value for key, value in labels.items() if key.startswith("rlt.dev/")}
    return left


def merge_all(fragments: list[Any], name: str) -> Any:
    merged: Any = {}
    for fragment in fragments:
        merged = merge_overlay(merged, for_container(fragment, name))
    return merged


BASE = render({}, {})
assert BASE
VOLUMES = {volume["name"] for template in BASE for volume in template["spec"]["volumes"]}
PATHS = {mount["mountPath"] for template in BASE for mount in template["spec"]["containers"][0]["volumeMounts"]}
fragments = st.lists(st.sampled_from([*HARMLESS.values()]) | st.sampled_from([*ATTACKS.values()]), max_size=3)


@settings(max_examples=300, deadline=None)
@given(fragments, fragments)
def test_an_accepted_template_changes_only_allowed_fields(head: list[Any], worker: list[Any]) -> None:
    rendered = render(merge_all(head, "ray-head"), merge_all(worker, "ray-worker"))
    if rendered is None:
        return
    assert BASE
    for before, after in zip(BASE, rendered, strict=True):
        assert remove_allowed(after, VOLUMES, PATHS) == remove_allowed(before, VOLUMES, PATHS)


def test_all_harmless_fields_together_are_accepted() -> None:
    other_volumes = ("claim", "emptyDir", "config map", "secret")
    every = [fragment for name, fragment in HARMLESS.items() if name not in other_volumes]
    rendered = render(merge_all(every, "ray-head"), merge_all(every, "ray-worker"))
    assert rendered
    for template in rendered:
        assert "data" in [volume["name"] for volume in template["spec"]["volumes"]]
        assert template["spec"]["containers"][0]["workingDir"] == "/data"


def test_volumes_of_the_operator_have_reserved_names() -> None:
    model_cache = {"claimName": "models", "mountPath": "/models"}
    function = {"function": {"configMap": "rewards", "name": "rewards:score"}}
    job = o.job({**o.SPEC, "storage": {"modelCache": model_cache}, "rewards": [function]})
    assert job.spec, job.findings
    spec = build_ray_cluster(job, job.spec)["spec"]["headGroupSpec"]["template"]["spec"]
    names = [volume["name"] for volume in spec["volumes"]]
    assert len(names) > 4
    assert all(map(RESERVED_VOLUMES.fullmatch, [*names, "host-0"])), names
