"""The operator's process against the real API server: KubeRay, scheduler and kubelet are played by the test."""

from __future__ import annotations

import json
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import PODS, Kubernetes, Operator, eventually

pytestmark = pytest.mark.apiserver


def test_a_job_gets_its_children(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    cluster = kubernetes.ray_cluster(namespace)
    eventually("Pending", lambda: kubernetes.status(namespace).get("phase") == "Pending")
    job = kubernetes.get(namespace, "rltrainingjob", "sum")
    config = kubernetes.get(namespace, "configmap", "sum-training")
    assert job
    assert config
    for child in (cluster, config):
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (job["metadata"]["uid"], True)
    assert job["status"]["observedGeneration"] == 1
    assert len(job["status"]["conditions"]) == 9
    assert not {"finalizers", "annotations"} & set(job["metadata"])
    assert f'rlt_job_phase{{name="sum",namespace="{namespace}",phase="Pending"}} 1.0' in operator.fetch("/metrics")


def test_a_deleted_job_takes_everything_with_it(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    kubernetes.kubectl("delete", "rltrainingjob", "sum", "-n", namespace)
    for kind, name in (("raycluster", "sum"), ("configmap", "sum-training")):
        eventually(f"no {kind}", lambda kind=kind, name=name: kubernetes.get(namespace, kind, name) is None)
    eventually("no metrics", lambda: f'namespace="{namespace}"' not in operator.fetch("/metrics"))


def test_a_claim_is_made_and_outlives_the_job(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "storage": {"storageClassName": "nfs", "size": "10Gi"}})
    cluster = kubernetes.ray_cluster(namespace)
    (volume,) = (v for v in cluster["spec"]["headGroupSpec"]["template"]["spec"]["volumes"] if v["name"] == "storage")
    assert volume["persistentVolumeClaim"] == {"claimName": "sum-storage"}
    kubernetes.kubectl("delete", "rltrainingjob", "sum", "-n", namespace)
    eventually("no cluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    claim = kubernetes.get(namespace, "persistentvolumeclaim", "sum-storage")
    assert claim
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert (claim["spec"]["storageClassName"], claim["spec"]["resources"]) == ("nfs", {"requests": {"storage": "10Gi"}})
    kubernetes.kubectl("delete", "pvc", "-n", namespace, "-l", "rlt.dev/job=sum", "--wait=false")


def test_a_claim_that_is_another_one_is_not_taken(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    """The words are the API server's: a claim's class cannot be changed."""
    spec = {**o.SPEC, "storage": {"storageClassName": "nfs", "size": "10Gi"}}
    kubernetes.create_job(namespace, spec)
    kubernetes.ray_cluster(namespace)
    kubernetes.kubectl("delete", "rltrainingjob", "sum", "-n", namespace)
    kubernetes.create_job(namespace, {**spec, "storage": {**spec["storage"], "storageClassName": "ceph"}})
    eventually("ClusterRefused", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "ClusterRefused")
    assert "spec is immutable after creation" in kubernetes.status(namespace)["message"]


def test_contradictions_are_not_accepted(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}})
    eventually("Failed", lambda: kubernetes.status(namespace).get("phase") == "Failed")
    status, reason, message = kubernetes.condition(namespace, "Accepted")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.training.trainBatchSize: 5" in message
    assert kubernetes.get(namespace, "raycluster", "sum") is None
    assert kubernetes.events(namespace) == ["InvalidSpec"]


def test_the_schedulers_words_reach_the_status(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    words = "0/2 nodes are available: 2 Insufficient cpu."
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    kubernetes.play_kuberay(namespace, {PODS[0]: {"phase": "Pending", "conditions": [unscheduled]}})
    eventually("Unschedulable", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "Unschedulable", 15)
    assert words in kubernetes.status(namespace)["message"]
    eventually("an event", lambda: "Unschedulable" in kubernetes.events(namespace))


def test_suspension_and_resumption(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    first = kubernetes.ray_cluster(namespace)
    kubernetes.play_kuberay(namespace, {PODS[0]: {"phase": "Pending"}})
    kubernetes.suspend(namespace, True)
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    kubernetes.end_pods(namespace)
    eventually("Suspended", lambda: kubernetes.condition(namespace, "Suspended")[0] == "True")
    assert kubernetes.status(namespace)["phase"] == "Suspended"
    kubernetes.suspend(namespace, False)
    assert kubernetes.ray_cluster(namespace)["metadata"]["uid"] != first["metadata"]["uid"]
    eventually("Resumed", lambda: "Resumed" in kubernetes.events(namespace))


def test_a_job_suspended_from_the_start_has_no_cluster(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "suspend": True})
    eventually("Suspended", lambda: kubernetes.status(namespace).get("phase") == "Suspended")
    assert kubernetes.get(namespace, "raycluster", "sum") is None


def test_a_killed_operator_catches_up(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    before = kubernetes.ray_cluster(namespace)
    operator.kill()
    kubernetes.play_kuberay(namespace, {PODS[0]: {"phase": "Pending"}})
    operator.start()
    eventually("Provisioning", lambda: kubernetes.status(namespace).get("phase") == "Provisioning")
    after = kubernetes.get(namespace, "raycluster", "sum")
    assert after
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert kubernetes.events(namespace) == ["Accepted"]


def test_a_foreign_cluster_is_left_alone(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    container = {"name": "c", "image": "i"}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    foreign = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "sum"}}
    foreign["spec"] = {"headGroupSpec": head}
    kubernetes.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(foreign))
    kubernetes.create_job(namespace, o.SPEC)
    eventually("NameTaken", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "NameTaken")
    kubernetes.kubectl("delete", "rltrainingjob", "sum", "-n", namespace)
    left = kubernetes.get(namespace, "raycluster", "sum")
    assert left
    assert "ownerReferences" not in left["metadata"]


def test_a_settled_job_is_not_written_again(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    kubernetes.play_kuberay(namespace, {pod: {"phase": "Pending"} for pod in PODS})
    eventually("Provisioning", lambda: kubernetes.status(namespace).get("phase") == "Provisioning")
    version = resource_version(kubernetes, namespace)
    looks = operator.looks()
    eventually("three more looks", lambda: operator.looks() >= looks + 3)
    assert resource_version(kubernetes, namespace) == version


def test_a_job_of_another_controller_is_left_alone(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "managedBy": "kueue.x-k8s.io/multikueue"})
    eventually(
        "a look",
        lambda: f'rlt_job_info{{framework="builtin",name="sum",namespace="{namespace}"' in operator.fetch("/metrics"),
    )
    assert kubernetes.status(namespace) == {}
    assert kubernetes.get(namespace, "raycluster", "sum") is None


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"spec": {"hostNam": "x"}}, 'unknown field "template.spec.hostNam"'),
        ({"spec": {"restartPolicy": "Sometimes"}}, 'Unsupported value: "Sometimes"'),
        ({"spec": {"containers": [{"name": "sidecar"}]}}, "template.spec.containers[1].image: Required value"),
    ],
)
def test_a_pod_template_that_makes_no_pod_is_refused_in_the_api_servers_words(
    kubernetes: Kubernetes, operator: Operator, namespace: str, part: dict[str, Any], words: str
) -> None:
    workers = [{**o.SPEC["cluster"]["workers"][0], "podTemplate": part}]
    kubernetes.create_job(namespace, {**o.SPEC, "cluster": {**o.SPEC["cluster"], "workers": workers}})
    eventually("ClusterRefused", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "ClusterRefused")
    message = kubernetes.status(namespace)["message"]
    assert message.startswith("spec.cluster.workers[0].podTemplate: ")
    assert words in message
    assert kubernetes.get(namespace, "raycluster", "sum") is None
    assert kubernetes.kubectl("get", "podtemplates", "-n", namespace, "-o", "name") == ""


def test_a_pod_template_that_makes_a_pod_is_used(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    head = {"podTemplate": {"spec": {"hostname": "ray", "containers": [{"name": "ray-head", "tty": True}]}}}
    kubernetes.create_job(namespace, {**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": head}})
    pod = kubernetes.ray_cluster(namespace)["spec"]["headGroupSpec"]["template"]["spec"]
    assert (pod["hostname"], pod["containers"][0]["tty"]) == ("ray", True)


def test_a_job_whose_cluster_is_not_ready_in_time_fails_and_goes(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "pendingDeadlineSeconds": 1})
    eventually("Failed", lambda: kubernetes.condition(namespace, "Failed")[1] == "PendingDeadlineExceeded")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    patch = json.dumps({"spec": {"ttlSecondsAfterFinished": 1}})
    kubernetes.kubectl("patch", "rltrainingjob", "sum", "-n", namespace, "--type=merge", "-p", patch)
    eventually("no job", lambda: kubernetes.get(namespace, "rltrainingjob", "sum") is None)


def test_kueue_has_the_last_word_on_suspension(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    """What Kueue's webhook and controller do is played: they write the RayCluster's spec.suspend."""
    kubernetes.create_job(namespace, {**o.SPEC, "scheduling": {"queueName": "team-a"}})
    cluster = kubernetes.ray_cluster(namespace)
    assert cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert "suspend" not in cluster["spec"]
    for suspend, reason in ((True, "WaitingForQueue"), (False, "QuotaReserved")):
        patch = json.dumps({"spec": {"suspend": suspend}})
        kubernetes.kubectl("patch", "raycluster", "sum", "-n", namespace, "--type=merge", "-p", patch)
        eventually(reason, lambda reason=reason: kubernetes.condition(namespace, "Admitted")[1] == reason)
        looks = operator.looks()
        eventually("two more looks", lambda looks=looks: operator.looks() >= looks + 2)
        assert kubernetes.ray_cluster(namespace)["spec"]["suspend"] is suspend


def test_sigterm_ends_the_operator(kubernetes: Kubernetes, operator: Operator) -> None:
    assert operator.fetch("/healthz") == "ok\n"
    assert operator.stop() == 0
    operator.start()


def resource_version(kubernetes: Kubernetes, namespace: str) -> str:
    job = kubernetes.get(namespace, "rltrainingjob", "sum")
    assert job
    version: str = job["metadata"]["resourceVersion"]
    return version
