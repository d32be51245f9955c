"""What a job's podTemplate may set under an RLRuntime, and limits on fields below a podTemplate."""

from __future__ import annotations

from typing import Any

import pytest
from job_specs import BUILTIN, merged
from pod_templates import ATTACKS, HARMLESS, container, for_container, pod

from rlt_api.findings.finding import Finding
from rlt_api.validation.validate import validate_job, validate_runtime

HEAD = "spec.cluster.head.podTemplate"
WORKER = "spec.cluster.workers[0].podTemplate"
Json = dict[str, Any]


def with_cluster(**cluster: Any) -> Json:
    return {**BUILTIN, "cluster": {**BUILTIN["cluster"], **cluster}}


def with_head(template: Json) -> Json:
    return with_cluster(head={"podTemplate": for_container(template, "ray-head")})


def with_worker(template: Json) -> Json:
    group = BUILTIN["cluster"]["workers"][0]
    return with_cluster(workers=[{**group, "podTemplate": for_container(template, "ray-worker")}])


def find(spec: Json, **runtime: Any) -> tuple[Finding, ...]:
    """The findings of the level alone: the fragments are not complete pods."""
    found = validate_job("sum", spec, runtime).findings
    return tuple(each for each in found if each.rule != "pod-template-shape")


@pytest.mark.parametrize("template", ATTACKS.values(), ids=ATTACKS)
def test_restricted_rejects_each_attack_in_head_and_worker(template: Json) -> None:
    for path, spec in ((HEAD, with_head(template)), (WORKER, with_worker(template))):
        found = find(spec)
        assert found, path
        for each in found:
            assert (each.field.startswith(path), each.rule) == (True, "runtime-pod-template")
            assert "(podTemplate: restricted)" in each.message
            assert each.fix
        assert find(spec, podTemplate="any") == ()


@pytest.mark.parametrize("template", HARMLESS.values(), ids=HARMLESS)
def test_restricted_accepts_harmless_fields(template: Json) -> None:
    assert find(with_head(template)) == find(with_worker(template)) == ()


def test_the_container_of_the_other_pods_is_another_container() -> None:
    crossed = with_head(pod(containers=[{"name": "ray-worker"}]))
    assert [each.field for each in find(crossed)] == [f"{HEAD}.spec.containers[0].name"]


def test_a_finding_names_field_value_and_fix() -> None:
    assert str(find(with_head(container(image="evil")))[0]) == (
        f'{HEAD}.spec.containers[0].image: "evil": is not allowed by the runtime (podTemplate: restricted); '
        "use spec.cluster.image"
    )


def test_forbidden_rejects_every_pod_template() -> None:
    (finding,) = find(with_worker(HARMLESS["labels"]), podTemplate="forbidden")
    assert (finding.field, finding.rule) == (WORKER, "runtime-pod-template")
    assert find(with_worker({}), podTemplate="forbidden") == ()


def test_the_platform_team_may_set_any_field_in_defaults() -> None:
    """Only what the job itself gives is restricted."""
    defaults = {"cluster": {"head": {"podTemplate": ATTACKS["hostNetwork"]}}}
    for level in ("restricted", "forbidden"):
        assert find(dict(BUILTIN), podTemplate=level, defaults=defaults) == ()


def test_every_worker_group_is_validated() -> None:
    group = BUILTIN["cluster"]["workers"][0]
    second = {**group, "name": "second", "podTemplate": pod(hostPID=True)}
    spec = merged(BUILTIN, {"rollout.mode": "separate", "cluster": {"workers": [group, second]}})
    assert "spec.cluster.workers[1].podTemplate.spec.hostPID" in [each.field for each in find(spec)]


def test_without_a_runtime_any_pod_template_is_valid() -> None:
    assert validate_job("sum", with_head(ATTACKS["privileged"])).findings == ()


@pytest.mark.parametrize(
    ("limit", "field"),
    [
        ({"field": "spec.cluster.head.podTemplate.spec.hostNetwork", "allowed": ["false"]}, f"{HEAD}.spec.hostNetwork"),
        (
            {"field": "spec.cluster.*.podTemplate.spec.*[].image", "allowed": ["registry.example/*"]},
            f"{HEAD}.spec.initContainers[1].image",
        ),
        (
            {"field": "spec.cluster.*.podTemplate.spec.containers[].resources.limits.*", "max": 4},
            f"{HEAD}.spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        (
            {"field": "spec.cluster.*.podTemplate.spec.volumes[].hostPath.path", "allowed": ["/dev/shm"]},
            f"{HEAD}.spec.volumes[0].hostPath.path",
        ),
        ({"field": "spec.cluster.*.podTemplate.spec.volumes[].hostPath", "allowed": ["none"]}, f"{HEAD}.spec.volumes"),
    ],
)
def test_a_limit_applies_below_a_pod_template(limit: Json, field: str) -> None:
    template = pod(
        hostNetwork=True,
        initContainers=[{"name": "a", "image": "registry.example/a"}, {"name": "b", "image": "evil"}],
        containers=[{"name": "ray-head", "resources": {"limits": {"nvidia.com/gpu": "64"}}}],
        volumes=[{"name": "a", "hostPath": {"path": "/"}}],
    )
    assert validate_runtime({"limits": [limit]}) == ()
    (finding,) = find(with_head(template), podTemplate="any", limits=[limit])
    assert finding.field.startswith(field)
    assert finding.rule == "runtime-limit"
    assert find(dict(BUILTIN), podTemplate="any", limits=[limit]) == ()


@pytest.mark.parametrize("value", ["1e9", "100E", "64Gi ", None, True, {"a": "1"}])
def test_a_maximum_rejects_what_it_cannot_compare(value: Any) -> None:
    limit = {"field": "spec.cluster.head.podTemplate.spec.overhead.memory", "max": 2**30}
    (finding,) = find(with_head(pod(overhead={"memory": value})), podTemplate="any", limits=[limit])
    assert "is not a number" in finding.message


def test_a_limit_applies_to_the_keys_of_a_map() -> None:
    limit = {"field": "spec.cluster.workers[].nodeSelector.*", "allowed": ["h100"]}
    assert validate_runtime({"limits": [limit]}) == ()
    spec = with_cluster(workers=[{**BUILTIN["cluster"]["workers"][0], "nodeSelector": {"pool": "other"}}])
    assert [each.field for each in find(spec, limits=[limit])] == ["spec.cluster.workers[0].nodeSelector.pool"]


def test_a_limit_applies_to_a_removed_parent() -> None:
    limit = {"field": "spec.cluster.*.podTemplate.spec.securityContext.runAsNonRoot", "allowed": ["true"]}
    for template, valid in ((pod(securityContext=None), False), ({"spec": None}, False), (pod(hostPID=True), True)):
        assert (find(with_head(template), podTemplate="any", limits=[limit]) == ()) is valid


@pytest.mark.parametrize(
    "field", ["spec.cluster.head.podTemplates.spec", "spec.*.n", "spec.storage.*.x", "spec.cluster.image.tag"]
)
def test_a_limit_must_name_a_field(field: str) -> None:
    found = validate_runtime({"limits": [{"field": field, "max": 1}]})
    assert [each.field for each in found] == ["spec.limits[0].field"]


def test_a_limit_on_the_queue_applies_to_the_label_of_the_job() -> None:
    runtime = {"limits": [{"field": "spec.scheduling.queueName", "allowed": ["small"]}]}
    labeled = {label: validate_job("sum", BUILTIN, runtime, queue_label=label).findings for label in ("small", "big")}
    assert labeled["small"] == ()
    assert [each.field for each in labeled["big"]] == ["metadata.labels[kueue.x-k8s.io/queue-name]"]
