"""A job without restarts survives a suspension, and the eviction or preemption of a worker.

Each time it saves a checkpoint first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rlt_e2e.cluster import Cluster, images
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_cleanup,
    await_condition,
    await_job,
    build_learning_job,
    get_condition,
    get_step,
    is_true,
    list_pods,
    read_job,
    read_metrics,
    run_rlt,
)

pytestmark = pytest.mark.cluster

STEPS = 80
STEPS_OF_PREEMPTED = 40
SEAT = "example.com/seat"
"""A resource of which one node has one."""
RELEASE_TIMEOUT_S = 120.0
"""Timeout for the pods of a job that has ended. Their grace period is 300 s."""


def test_suspended_and_evicted_job_resumes_after_its_last_step(cluster: Cluster, namespace: str) -> None:
    """The job saves no other checkpoints than at its interruptions, and the metrics have each step once."""
    name = apply_job(
        cluster, namespace, build_learning_job("interrupted", steps=STEPS, save_freq=10 * STEPS, workers=1)
    )
    first = await_step_after(cluster, namespace, name, 2)
    run_rlt(cluster, "suspend", name, "-n", namespace)
    run_rlt(cluster, "wait", name, "--for", "Suspended", "--timeout", "5m", "-n", namespace)
    cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{name}", "--timeout=300s")
    suspended = read_job(cluster, namespace, name)
    saved = int(suspended["status"]["checkpoint"]["latestStep"])
    assert saved >= get_step(first)

    run_rlt(cluster, "resume", name, "-n", namespace)
    second = await_step_after(cluster, namespace, name, saved)
    assert first["status"]["rayCluster"]["jobId"] != second["status"]["rayCluster"]["jobId"]
    worker = find_worker(cluster, namespace, name)
    with pytest.raises(ValueError, match="violate the pod's disruption budget"):
        evict(cluster, namespace, worker)
    cluster.kubectl("-n", namespace, "delete", "poddisruptionbudget", f"{name}-pods")
    evict(cluster, namespace, worker)
    disrupted = await_job(
        cluster,
        namespace,
        name,
        lambda job: any(each["reason"] == "Disrupted" for each in job["status"].get("attempts", [])),
        what="an attempt",
        timeout_s=EVENT_TIMEOUT_S,
    )
    attempt = disrupted["status"]["attempts"][-1]
    assert attempt["disruption"] == "EvictionByEvictionAPI"
    assert worker in attempt["message"]

    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    await_cleanup(cluster, namespace, name, keep="configmap", timeout_s=RELEASE_TIMEOUT_S)
    assert (done["status"]["restarts"], done["status"]["disruptions"]) == (0, 1)
    steps = [line["step"] for line in read_metrics(cluster, namespace, done)]
    assert steps == [*range(1, STEPS + 1)], "it resumed after its last step"
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait")
    await_cleanup(cluster, namespace, name)


@pytest.fixture
def priority(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A PriorityClass above the jobs' pods, and a node with a seat."""
    if not cluster.layout:
        pytest.skip("the resource needs the embedded cluster")
    node = cluster.nodes()[0]
    cluster.set_extended_resource(node, SEAT, 1)
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": namespace},
            "value": 1000,
        }
    )
    yield namespace
    cluster.kubectl("delete", "priorityclass", namespace)
    cluster.set_extended_resource(node, SEAT, 0)


@pytest.mark.long
def test_preempted_job_waits_for_its_place_and_resumes_after_its_last_step(
    cluster: Cluster, namespace: str, priority: str
) -> None:
    """kube-scheduler ends the worker for a pod that needs its seat. It does not respect the disruption budget."""
    job = build_learning_job("preempted", steps=STEPS_OF_PREEMPTED, save_freq=10 * STEPS_OF_PREEMPTED, workers=1)
    seat = {"limits": {SEAT: "1"}}
    template = {"spec": {"containers": [{"name": "ray-worker", "resources": seat}]}}
    job["spec"]["cluster"]["workers"][0]["podTemplate"] = template
    name = apply_job(cluster, namespace, job)
    before = await_step_after(cluster, namespace, name, 2)
    worker = find_worker(cluster, namespace, name)
    pod = {
        "priorityClassName": priority,
        "containers": [{"name": "pause", "image": images.PAUSE, "resources": seat}],
    }
    metadata = {"name": "preemptor", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})

    waiting = await_job(
        cluster,
        namespace,
        name,
        lambda job: (
            bool(job["status"].get("attempts"))  # KubeRay may replace the worker before the program has ended
            and f"Insufficient {SEAT}" in get_condition(job, "ClusterReady")["message"]
        ),
        what="an attempt, and the scheduler's message",
        timeout_s=EVENT_TIMEOUT_S,
    )
    (attempt,) = waiting["status"]["attempts"]
    assert (attempt["reason"], attempt["disruption"]) == ("Disrupted", "PreemptionByScheduler")
    assert worker in attempt["message"]
    saved = waiting["status"]["checkpoint"]["latestStep"]
    assert get_step(before) <= saved == attempt["step"] < STEPS_OF_PREEMPTED
    cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/preemptor", f"--timeout={EVENT_TIMEOUT_S}s")

    cluster.kubectl("-n", namespace, "delete", "pod", "preemptor", "--now")
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    assert (done["status"]["restarts"], done["status"]["disruptions"]) == (0, 1)
    steps = [line["step"] for line in read_metrics(cluster, namespace, done)]
    assert steps == [*range(1, STEPS_OF_PREEMPTED + 1)], "it resumed after its last step"


def await_step_after(cluster: Cluster, namespace: str, name: str, step: int) -> Job:
    """Wait until the job runs and has finished a later step."""

    def wanted(job: Job) -> bool:
        return is_true(job, "Running") and get_step(job) > step

    return await_job(cluster, namespace, name, wanted, what=f"a step after {step}", timeout_s=START_TIMEOUT_S)


def find_worker(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the name of the job's only worker pod."""
    (worker,) = (pod for pod in list_pods(cluster, namespace, name) if "-head-" not in pod)
    return worker


def evict(cluster: Cluster, namespace: str, pod: str) -> None:
    """Evict the pod by the API, as `kubectl drain` does. Raises ValueError if its disruption budget forbids it."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
