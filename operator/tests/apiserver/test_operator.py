"""The operator's process with the real API server. The test simulates KubeRay, the scheduler and the kubelet."""

from __future__ import annotations

import json
from typing import Any

import observed as o
import pytest
from apiserver.in_cluster import PODS, Kubernetes, Operator
from apiserver.waiting import eventually

from rlt_api.validation.resolved_spec import get_resolved_spec

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
    types = [each["type"] for each in job["status"]["conditions"]]
    assert types == ["Accepted", "FabricVerified", "ClusterReady", "Running", "Reconciling"]
    assert not {"finalizers", "annotations"} & set(job["metadata"])
    assert f'rlt_job_phase{{name="sum",namespace="{namespace}",phase="Pending"}} 1.0' in operator.fetch("/metrics")


def test_deleting_a_job_deletes_its_children_and_metrics(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    for kind, name in (("raycluster", "sum"), ("configmap", "sum-training")):
        eventually(f"no {kind}", lambda: kubernetes.get(namespace, kind, name) is None)  # noqa: B023 - called at once
    eventually("no metrics", lambda: f'namespace="{namespace}"' not in operator.fetch("/metrics"))


def test_a_pvc_is_created_and_kept_after_the_job(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "storage": {"storageClassName": "nfs", "size": "10Gi"}})
    cluster = kubernetes.ray_cluster(namespace)
    (volume,) = (v for v in cluster["spec"]["headGroupSpec"]["template"]["spec"]["volumes"] if v["name"] == "storage")
    assert volume["persistentVolumeClaim"] == {"claimName": "sum-storage"}
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    eventually("no cluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    pvc = kubernetes.get(namespace, "persistentvolumeclaim", "sum-storage")
    assert pvc
    assert pvc["spec"]["accessModes"] == ["ReadWriteMany"]
    assert (pvc["spec"]["storageClassName"], pvc["spec"]["resources"]) == ("nfs", {"requests": {"storage": "10Gi"}})
    kubernetes.kubectl("delete", "pvc", "-n", namespace, "-l", "rlt.dev/job=sum", "--wait=false")


def test_an_existing_pvc_of_another_class_is_rejected(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    """The API server rejects a change of a PVC's class."""
    spec = {**o.SPEC, "storage": {"storageClassName": "nfs", "size": "10Gi"}}
    kubernetes.create_job(namespace, spec)
    kubernetes.ray_cluster(namespace)
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    kubernetes.create_job(namespace, {**spec, "storage": {**spec["storage"], "storageClassName": "ceph"}})
    eventually("ClusterRejected", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "ClusterRejected")
    assert "spec is immutable after creation" in kubernetes.status(namespace)["message"]


def test_a_contradiction_fails_the_job(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "training": {"totalSteps": 1, "trainBatchSize": 5}})
    eventually("Failed", lambda: kubernetes.status(namespace).get("phase") == "Failed")
    status, reason, message = kubernetes.condition(namespace, "Accepted")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.training.trainBatchSize: 5" in message
    assert kubernetes.get(namespace, "raycluster", "sum") is None
    eventually("its event", lambda: kubernetes.events(namespace) == ["InvalidSpec"])


def test_the_message_of_the_scheduler_is_in_the_status(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    message = "0/2 nodes are available: 2 Insufficient cpu."
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    kubernetes.play_kuberay(namespace, {PODS[0]: {"phase": "Pending", "conditions": [unscheduled]}})
    eventually("Unschedulable", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "Unschedulable", 15)
    assert message in kubernetes.status(namespace)["message"]
    eventually("an event", lambda: "Unschedulable" in kubernetes.events(namespace))


def test_a_job_is_suspended_and_resumed(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
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


def test_a_restarted_operator_continues(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
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
    assert kubernetes.events(namespace) == []


def test_a_raycluster_of_another_owner_is_not_changed(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    container = {"name": "c", "image": "i"}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    foreign = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "sum"}}
    foreign["spec"] = {"headGroupSpec": head}
    kubernetes.create(namespace, foreign)
    kubernetes.create_job(namespace, o.SPEC)
    eventually("NameTaken", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "NameTaken")
    kubernetes.delete(namespace, "rltrainingjob", "sum")
    remaining = kubernetes.get(namespace, "raycluster", "sum")
    assert remaining
    assert "ownerReferences" not in remaining["metadata"]


def test_an_unchanged_status_is_not_written_again(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, o.SPEC)
    kubernetes.ray_cluster(namespace)
    kubernetes.play_kuberay(namespace, {pod: {"phase": "Pending"} for pod in PODS})
    eventually("Provisioning", lambda: kubernetes.status(namespace).get("phase") == "Provisioning")
    version = resource_version(kubernetes, namespace)
    count = operator.reconciliations()
    eventually("three more reconciliations", lambda: operator.reconciliations() >= count + 3)
    assert resource_version(kubernetes, namespace) == version


def test_a_job_of_another_controller_is_not_changed(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "managedBy": "kueue.x-k8s.io/multikueue"})
    eventually(
        "a reconciliation",
        lambda: f'rlt_job_info{{framework="builtin",name="sum",namespace="{namespace}"' in operator.fetch("/metrics"),
    )
    assert kubernetes.status(namespace) == {}
    assert kubernetes.get(namespace, "raycluster", "sum") is None


def test_a_job_starts_from_the_checkpoint_of_another_one(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    """Another controller writes the status of the other job."""
    checkpoints = {"storage": {"claimName": "runs"}, "checkpoint": {"resume": "job", "resumeFromJob": "stage-1"}}
    kubernetes.create_job(namespace, {**o.SPEC, **checkpoints})
    eventually("WaitingForJob", lambda: kubernetes.condition(namespace, "Accepted")[1] == "WaitingForJob")
    storage = {"storage": checkpoints["storage"], "managedBy": "kueue.x-k8s.io/multikueue"}
    kubernetes.create_job(namespace, {**o.SPEC, **storage}, "stage-1")
    condition = {"type": "Succeeded", "status": "True", "reason": "Completed", "message": "", "observedGeneration": 1}
    status = {
        "conditions": [{**condition, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        "checkpoint": {"latestStep": 40, "path": "/mnt/rlt/runs/stage-1-22222222/checkpoints"},
    }
    options = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    kubernetes.kubectl("patch", "rltrainingjob", "stage-1", "-n", namespace, *options)
    kubernetes.ray_cluster(namespace)
    config = kubernetes.get(namespace, "configmap", "sum-training")
    assert config
    path = json.loads(config["data"]["training.json"])["checkpoint"]["resumeFromPath"]
    assert path == "/mnt/rlt/runs/stage-1-22222222/checkpoints/step-40"
    kept = get_resolved_spec({"status": kubernetes.status(namespace)})
    assert kept["checkpoint"]["resumeFromPath"] == path


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"spec": {"newField": "x"}}, 'unknown field "template.spec.newField"'),
        ({"spec": {"overhead": {"cpu": "x"}}}, "quantities must match the regular expression"),
        ({"spec": {"containers": [{"name": "Side_car", "image": "a"}]}}, 'Invalid value: "Side_car"'),
    ],
)
def test_an_invalid_pod_template_is_rejected_with_the_message_of_the_api_server(
    kubernetes: Kubernetes, operator: Operator, namespace: str, template: dict[str, Any], message: str
) -> None:
    workers = [{**o.SPEC["cluster"]["workers"][0], "podTemplate": template}]
    kubernetes.create_job(namespace, {**o.SPEC, "cluster": {**o.SPEC["cluster"], "workers": workers}})
    eventually("ClusterRejected", lambda: kubernetes.condition(namespace, "ClusterReady")[1] == "ClusterRejected")
    reported = kubernetes.status(namespace)["message"]
    assert reported.startswith("spec.cluster.workers[0].podTemplate: ")
    assert message in reported
    assert kubernetes.get(namespace, "raycluster", "sum") is None
    assert kubernetes.kubectl("get", "podtemplates", "-n", namespace, "-o", "name") == ""


def test_a_valid_pod_template_is_used(kubernetes: Kubernetes, operator: Operator, namespace: str) -> None:
    head = {"podTemplate": {"spec": {"hostname": "ray", "containers": [{"name": "ray-head", "tty": True}]}}}
    kubernetes.create_job(namespace, {**o.SPEC, "cluster": {**o.SPEC["cluster"], "head": head}})
    pod = kubernetes.ray_cluster(namespace)["spec"]["headGroupSpec"]["template"]["spec"]
    assert (pod["hostname"], pod["containers"][0]["tty"]) == ("ray", True)


def test_the_pending_deadline_fails_the_job_and_the_ttl_deletes_it(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    kubernetes.create_job(namespace, {**o.SPEC, "pendingDeadlineSeconds": 1})
    eventually("Failed", lambda: kubernetes.condition(namespace, "Failed")[1] == "PendingDeadlineExceeded")
    eventually("no RayCluster", lambda: kubernetes.get(namespace, "raycluster", "sum") is None)
    patch = json.dumps({"spec": {"ttlSecondsAfterFinished": 1}})
    kubernetes.kubectl("patch", "rltrainingjob", "sum", "-n", namespace, "--type=merge", "-p", patch)
    eventually("no job", lambda: kubernetes.get(namespace, "rltrainingjob", "sum") is None)


def test_kueue_controls_the_suspension_of_the_raycluster(
    kubernetes: Kubernetes, operator: Operator, namespace: str
) -> None:
    """The test sets the RayCluster's spec.suspend, as Kueue's webhook and controller do."""
    kubernetes.create_job(namespace, {**o.SPEC, "scheduling": {"queueName": "team-a"}})
    cluster = kubernetes.ray_cluster(namespace)
    assert cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert "suspend" not in cluster["spec"]
    for suspend, reason in ((True, "WaitingForQueue"), (False, "QuotaReserved")):
        patch = json.dumps({"spec": {"suspend": suspend}})
        kubernetes.kubectl("patch", "raycluster", "sum", "-n", namespace, "--type=merge", "-p", patch)
        eventually(reason, lambda: kubernetes.condition(namespace, "Admitted")[1] == reason)  # noqa: B023 - called at once
        count = operator.reconciliations()
        eventually("two more reconciliations", lambda: operator.reconciliations() >= count + 2)  # noqa: B023 - called at once
        assert kubernetes.ray_cluster(namespace)["spec"]["suspend"] is suspend


def test_sigterm_stops_the_operator(kubernetes: Kubernetes, operator: Operator) -> None:
    assert operator.fetch("/healthz") == "ok\n"
    assert operator.stop() == 0
    operator.start()


def resource_version(kubernetes: Kubernetes, namespace: str) -> str:
    job = kubernetes.get(namespace, "rltrainingjob", "sum")
    assert job
    version: str = job["metadata"]["resourceVersion"]
    return version
