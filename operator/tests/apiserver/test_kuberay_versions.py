"""The RayCluster CRDs of KubeRay 1.3.2, 1.4.2, 1.5.1 and 1.6.2, one after the other, in a separate API server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import observed as o
import pytest
import yaml
from apiserver.in_cluster import Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_core.children.build import build_children
from rlt_core.kuberay import MARKS, OLDEST, POD_FIELDS_SINCE, KubeRay, describe_lost_fields, parse_kuberay
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.kuberay_crds import VERSIONS, obtain_ray_cluster_crd
from rlt_e2e.ports import free_ports

pytestmark = pytest.mark.apiserver

CRDS = Path(__file__).parents[3] / "crds"
GOLDEN = sorted((Path(__file__).parents[3] / "core/tests/golden").glob("*.yaml"))
NETWORKS = sorted((Path(__file__).parents[3] / "core/tests/fabric/golden").glob("*.yaml"))
APPLY = ("apply", "--server-side", "--force-conflicts", "-f")
OLD = VERSIONS[0]
NEW = VERSIONS[-1]

POD = {
    "hostnameOverride": "x",
    "workloadRef": {"name": "x", "podGroup": "x"},
    "schedulingGroup": {},
    "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "x"}],
    "volumes": [
        {"name": "x", "projected": {"sources": [{"podCertificate": {"keyType": "x", "userAnnotations": {"a/b": "c"}}}]}}
    ],
    "containers": [
        {
            "name": "x",
            "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"key": "a", "path": "b", "volumeName": "c"}}}],
            "lifecycle": {"stopSignal": "SIGTERM"},
            "restartPolicyRules": [{"action": "Restart"}],
            "nonsense": {"a": [1]},
        }
    ],
}
GROUP = {"rayStartParams": {}, "labels": {"a": "b"}, "resources": {"CPU": "1"}, "priority": 1}
NEWEST: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "x", "namespace": "default"},
    "spec": {
        "authOptions": {"mode": "token", "secretName": "x"},
        "upgradeStrategy": {"type": "None"},
        "networkPolicy": {"mode": "DenyAll"},
        "managedBy": "ray.io/kuberay-operator",
        "autoscalerOptions": {"version": "v2"},
        "headGroupSpec": {**GROUP, "template": {"metadata": {"generateName": "x", "labels": {"a": "b"}}, "spec": POD}},
    },
}
"""A RayCluster with fields of newer KubeRay versions, an unknown field, and fields that only Kubernetes has."""


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """An API server whose RayCluster CRD can be replaced."""
    cluster = Cluster.up(nodes=0, state=tmp_path_factory.mktemp("kuberay") / "state", first_port=free_ports(6))
    cluster.kubectl("apply", "--server-side", "-f", CRDS)
    yield Kubernetes(cluster)
    cluster.down()


@dataclass(frozen=True)
class Installed:
    """A KubeRay whose RayCluster CRD is in the API server."""

    version: str
    kubernetes: Kubernetes

    @property
    def parsed(self) -> KubeRay:
        crd = self.kubernetes.get("", "customresourcedefinition", "rayclusters.ray.io")
        assert crd
        return parse_kuberay(crd)


@pytest.fixture(scope="module", params=VERSIONS)
def kuberay(separate: Kubernetes, request: pytest.FixtureRequest) -> Installed:
    """Each version. The previous CRD is deleted first, so that the API server cannot use it."""
    separate.kubectl("delete", "crd", "rayclusters.ray.io", "--wait", "--ignore-not-found")
    install(separate, request.param)
    return Installed(request.param, separate)


def install(kubernetes: Kubernetes, version: str) -> None:
    """Install or upgrade the CRD."""
    kubernetes.kubectl(*APPLY, obtain_ray_cluster_crd(version))

    def served() -> bool:
        crd = kubernetes.get("", "customresourcedefinition", "rayclusters.ray.io") or {}
        conditions = crd.get("status", {}).get("conditions") or []
        return ("Established", "True") in {(each["type"], each["status"]) for each in conditions}

    eventually("the CRD is served", served)


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def parents(path: str) -> set[str]:
    return {path[: match.start()] for match in re.finditer(r"[.\[{]", path)}


def crd_of(version: str) -> KubeRay:
    return parse_kuberay(yaml.load(obtain_ray_cluster_crd(version).read_text(), yaml.CSafeLoader))


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_every_kuberay_accepts_every_golden_manifest(kuberay: Installed, golden: Path) -> None:
    (cluster,) = (m for m in yaml.safe_load_all(golden.read_text()) if m["kind"] == "RayCluster")
    cluster["metadata"]["namespace"] = "default"
    kuberay.kubernetes.dry_run("default", cluster)
    assert kuberay.parsed.list_lost_fields(cluster) == ()


def test_every_kuberay_accepts_the_workers_of_every_network(kuberay: Installed) -> None:
    clusters = []
    for path in NETWORKS:
        template = yaml.load(path.read_text(), yaml.CSafeLoader)["worker"]
        group = {"groupName": "workers", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}}
        head = {"rayStartParams": {}, "template": template}
        spec = {"headGroupSpec": head, "workerGroupSpecs": [{**group, "template": template}]}
        metadata = {"name": path.stem, "namespace": "default"}
        clusters.append({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
    for cluster in clusters:
        kuberay.kubernetes.dry_run("default", cluster)


def test_the_operator_finds_the_fields_that_the_api_server_drops(kuberay: Installed) -> None:
    with pytest.raises(ValueError, match="unknown field") as rejection:
        kuberay.kubernetes.dry_run("default", NEWEST)
    unknown = set(re.findall(r'unknown field "([^"]+)"', str(rejection.value)))
    assert unknown == set(kuberay.parsed.list_lost_fields(NEWEST))
    assert "spec.headGroupSpec.template.spec.containers[0].nonsense" in unknown


def test_kuberay_before_1_6_does_not_support_gangs(kuberay: Installed) -> None:
    job = o.job({**o.COMMAND_SPEC, "scheduling": {"schedulerName": "default-scheduler", "gang": True}})
    assert job.spec
    *_, cluster = build_children(job, job.spec)
    message = describe_lost_fields(kuberay.parsed, cluster)
    if minor(kuberay.version) < "1.6":
        assert "spec.headGroupSpec.template.spec.workloadRef (since 1.6)" in (message or "")
    else:
        assert message is None


def test_the_version_is_derived_from_the_fields(kuberay: Installed) -> None:
    version = kuberay.parsed.version
    assert version == (OLDEST if minor(kuberay.version) == "1.3" else minor(kuberay.version))
    assert version in {*MARKS, OLDEST}


def test_the_table_contains_every_pod_field_newer_than_the_oldest_crd() -> None:
    seen = crd_of(OLD).fields
    since = dict[str, str]()
    for version in VERSIONS[1:]:
        new = crd_of(version).fields - seen
        tops = {
            path
            for path in new
            if ".template." in path and not any(path.startswith(f"{p}{c}") for p in new for c in ".[{")
        }
        for path in tops:
            (end,) = (end for end in POD_FIELDS_SINCE if path.endswith(f".{end}"))
            assert since.setdefault(end, minor(version)) == minor(version) == POD_FIELDS_SINCE[end], path
        seen |= new
    # The CRD of 1.7 is not published as a Go module.
    assert set(POD_FIELDS_SINCE) - set(since) == {"spec.schedulingGroup"}


@pytest.fixture(scope="module")
def operated(separate: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """The API server with a running operator."""
    operator = Operator(separate.cluster.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log")
    operator.start()
    yield separate
    operator.stop()


@pytest.fixture
def new_namespace(separate: Kubernetes, request: pytest.FixtureRequest) -> str:
    """A namespace in this API server."""
    name = f"held-{len(request.node.name)}"
    separate.create_namespace(name)
    return name


def with_template(template: dict[str, Any]) -> dict[str, Any]:
    return {**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": {"podTemplate": template}}}


def test_a_job_waits_for_the_upgrade_of_an_old_crd(operated: Kubernetes, new_namespace: str) -> None:
    install(operated, OLD)
    signal = {"name": "ray-head", "lifecycle": {"stopSignal": "SIGUSR1"}}
    operated.create_job(new_namespace, with_template({"spec": {"containers": [signal], "os": {"name": "linux"}}}))
    operated.wait(new_namespace, "ClusterReady", "KubeRayTooOld")
    lost = "spec.headGroupSpec.template.spec.containers[0].lifecycle.stopSignal (since 1.4)"
    assert lost in operated.condition(new_namespace, "Stalled")[2]
    eventually("an event", lambda: "KubeRayTooOld" in operated.events(new_namespace))
    assert operated.get(new_namespace, "raycluster", "sum") is None
    install(operated, NEW)
    cluster = eventually("a RayCluster", lambda: operated.get(new_namespace, "raycluster", "sum"))
    (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container["lifecycle"]["stopSignal"] == "SIGUSR1"


def test_a_field_that_kubernetes_does_not_know_is_rejected_with_its_message(
    operated: Kubernetes, new_namespace: str
) -> None:
    install(operated, OLD)
    operated.create_job(new_namespace, with_template({"spec": {"newNetworkField": True}}))
    operated.wait(new_namespace, "ClusterReady", "ClusterRejected")
    assert 'unknown field "template.spec.newNetworkField"' in operated.status(new_namespace)["message"]


def test_a_job_waits_if_the_crd_lacks_a_rendered_field(operated: Kubernetes, new_namespace: str) -> None:
    crd = yaml.load(obtain_ray_cluster_crd(OLD).read_text(), yaml.CSafeLoader)
    for version in crd["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        for name in ("spec", "headGroupSpec", "template", "spec"):
            properties = properties[name]["properties"]
        del properties["nodeSelector"]
    operated.kubectl(*APPLY, "-", input=json.dumps(crd))
    spec = {**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": {"nodeSelector": {"pool": "cpu"}}}}
    operated.create_job(new_namespace, spec)
    operated.wait(new_namespace, "ClusterReady", "KubeRayTooOld")
    assert "lacks spec.headGroupSpec.template.spec.nodeSelector. " in operated.status(new_namespace)["message"]
