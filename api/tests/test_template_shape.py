"""Mistakes in a podTemplate: errors if the API server rejects the pods or a name is misspelled, otherwise warnings."""

from __future__ import annotations

from typing import Any

import pytest

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.validation.template_shape import validate_template_shape, warn_template_shape

GPUS = {
    "resources": {"cpu": "8", "memory": "64Gi"},
    "accelerator": {"resourceName": "nvidia.com/gpu", "count": 8},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def find(template: dict[str, Any], **group: Any) -> tuple[list[str], list[str]]:
    """Return the errors and the warnings about the podTemplate of a worker group."""
    spec = RLTrainingJobSpec.model_validate({"cluster": {"workers": [{**group, "podTemplate": template}]}})
    return [str(each) for each in validate_template_shape(spec)], list(warn_template_shape(spec))


def own(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "ray-worker", **fields}]}}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"container": []}, "podTemplate.container: container: is not a field"),
        ({"spec": []}, "podTemplate.spec: []: must be an object"),
        ({"spec": {"container": []}}, "spec.container: container: is not a field; did you mean containers?"),
        ({"spec": {"containers": {}}}, "spec.containers: {}: must be a list; use a list"),
        ({"spec": {"terminationGracePeriodSeconds": "30"}}, "must be an integer; write 30 without quotes"),
        ({"spec": {"containers": [{"name": "ray-head"}]}}, "containers[0].name: ray-head: is not in these pods"),
        ({"spec": {"containers": [{"image": "x"}]}}, "containers[0].name: none: is required: ray-worker is the"),
        ({"spec": {"containers": [{"name": "ray-workers"}]}}, "has no image; did you mean ray-worker?"),
        ({"spec": {"hostNetwork": "yes"}}, "spec.hostNetwork: yes: must be true or false; use true"),
        ({"spec": {"hostNetwork": "true"}}, "hostNetwork: true: must be true or false; write true without quotes"),
        ({"spec": {"nodeSelector": {"gpu": True}}}, 'nodeSelector.gpu: True: must be text; write "true" in quotes'),
        ({"metadata": {"labels": {"rank": 1}}}, 'metadata.labels.rank: 1: must be text; write "1" in quotes'),
        (
            {"metadata": {"annotation": {}}},
            "metadata.annotation: annotation: is not a field; did you mean annotations?",
        ),
        ({"spec": {"tolerations": {"key": "gpu"}}}, "spec.tolerations: {'key': 'gpu'}: must be a list"),
        ({"spec": {"tolerations": [{"key": "gpu", "effects": "NoSchedule"}]}}, "did you mean effect?"),
        ({"spec": {"tolerations": [{"key": "gpu", "operator": "Exist"}]}}, "did you mean Exists?"),
        ({"spec": {"affinity": {"nodeAffinty": {}}}}, "did you mean nodeAffinity?"),
        ({"spec": {"affinity": {"nodeAffinity": {REQUIRED: []}}}}, "must be an object"),
        ({"spec": {"volumes": [{"name": "d", "emptydir": {}}]}}, "did you mean emptyDir?"),
        ({"spec": {"volumes": [{"emptyDir": {}}]}}, "volumes[0].name: none: is required"),
        ({"spec": {"volumes": [{"name": "d", "emptyDir": {"sizeLimit": "64GB"}}]}}, "must be a quantity such as"),
        (
            {"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimname": "x"}}]}},
            "did you mean claimName?",
        ),
        ({"spec": {"restartPolicy": "never"}}, "spec.restartPolicy: never: must be Always or OnFailure or Never; did"),
        ({"spec": {"tolerationSeconds": 30}}, "is not a field here, but of podTemplate.spec.tolerations[]; move it to"),
        ({"spec": {"volumeMounts": []}}, "is not a field here, but of podTemplate.spec.containers[]"),
        ({"nodeSelector": {}}, "move it to podTemplate.spec"),
        (own(hostNetwork=True), "move it to podTemplate.spec"),
        (own(imagepullPolicy="Always"), "did you mean imagePullPolicy?"),
        (own(env=[{"name": "A", "value": 1}]), 'env[0].value: 1: must be text; write "1" in quotes'),
        (own(env=[{"name": "A", "valueFrom": {"secretRef": {}}}]), "did you mean secretKeyRef?"),
        (own(env={"A": "1"}), "must be a list"),
        (own(volumeMount=[]), "did you mean volumeMounts?"),
        (
            own(volumeMounts=[{"name": "d", "mountPath": "/d"}]),
            "volumeMounts[0].name: d: is not a volume of these pods",
        ),
        (own(volumeMounts=[{"name": "storage", "mountpath": "/d"}]), "mountPath: none: is required"),
        (own(securityContext={"privilegd": True}), "did you mean privileged?"),
        (own(resources={"limit": {"cpu": 1}}), "did you mean limits?"),
        (own(resources={"limits": {"memory": "64GB"}}), "limits.memory: 64GB: must be a quantity such as"),
        (own(command="sleep"), "command: sleep: must be a list"),
        (own(ports=[{"containerPort": "80"}]), "must be an integer; write 80 without quotes"),
    ],
)
def test_a_certain_mistake_is_an_error(template: dict[str, Any], expected: str) -> None:
    errors, _ = find(template)
    assert expected in "\n".join(errors)


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "true"}}, "spec": {"hostNetwork": True}},
        {"spec": {"securityContext": None, "volumes": None, "runtimeClassName": "nvidia", "hostIPC": True}},
        {"spec": {"volumes": [{"name": "d", "hostPath": {"path": "/d", "type": "Directory"}}], "dnsPolicy": "Default"}},
        {"spec": {"containers": [{"name": "ray-worker"}, {"name": "proxy", "image": "proxy:1"}]}},
        {"spec": {"tolerations": [{"operator": "Exists"}], "topologySpreadConstraints": []}},
        {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": []}]}}}}},
        own(volumeMounts=[{"name": "shared-memory", "mountPath": "/dev/shm"}, {"name": "storage", "mountPath": "/x"}]),
        own(env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
        own(resources={"limits": {"rdma/hca": 1, "hugepages-2Mi": "4Gi"}}, livenessProbe={"any": 1}),
    ],
)
def test_a_valid_template_has_no_finding(template: dict[str, Any]) -> None:
    assert find(template) == ([], [])


def test_a_field_of_another_version_is_a_warning() -> None:
    errors, warnings = find({"spec": {"fieldOfTheFuture": 1}})
    assert errors == []
    assert "spec.fieldOfTheFuture: fieldOfTheFuture: is not a field" in warnings[0]


@pytest.mark.parametrize(
    ("resources", "expected", "is_error"),
    [
        ({"limits": {"cpu": "4"}}, "limits.cpu: 4: differs from spec.cluster.workers[0].resources.cpu 8", True),
        ({"limits": {"cpu": "4"}, "requests": {"cpu": "4"}}, "limits.cpu: 4: differs from", False),
        ({"requests": {"memory": "32Gi"}}, "remove it, and set spec.cluster.workers[0].resources.memory", False),
        (
            {"limits": {"nvidia.com/gpu": 4}},
            "limits[nvidia.com/gpu]: 4: differs from spec.cluster.workers[0].acc",
            True,
        ),
        ({"limits": {"amd.com/gpu": 8}}, "limits[amd.com/gpu]: 8: is not the accelerator of the group", True),
        ({"limits": {"cpu": None}}, "limits.cpu: None: differs from", False),
        ({"limits": {"cpu": "8000m", "memory": "65536Mi", "nvidia.com/gpu": "8", "rdma/hca": "1"}}, "", False),
        ({"requests": None}, "", False),
    ],
)
def test_amounts_that_differ_are_found(resources: Any, expected: str, is_error: bool) -> None:
    errors, warnings = find(own(resources=resources), **GPUS)
    assert bool(errors) is is_error
    assert bool(warnings) is bool(expected and not is_error)
    assert expected in "\n".join([*errors, *warnings])


def test_a_mount_of_the_runtimes_volume_needs_the_runtime() -> None:
    spec = RLTrainingJobSpec.model_validate(
        {"cluster": {"workers": [{"podTemplate": own(volumeMounts=[{"name": "d", "mountPath": "/d"}])}]}}
    )
    (finding,) = validate_template_shape(spec)
    assert finding.involved == ("spec.cluster.workers[0].podTemplate.spec.volumes",)
