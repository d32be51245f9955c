"""Kueue decides when jobs run.

- two jobs share a quota for one: the second runs after the first;
- a job that Kueue evicts does not fail, and runs again;
- the pods that are added to a job that runs wait for quota, and the training continues without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rlt_e2e.chaos.jobs import build_job
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.kueue import kueue, manage_namespace
from rlt_e2e.installation import CLAIM
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_condition,
    await_job,
    build_command_job,
    get_condition,
    get_step,
    is_true,
    read_job,
)

pytestmark = pytest.mark.cluster

QUEUE = "team"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PROGRAM = "for step in range(1, 4): print(f'step:{step} - critic/rewards/mean:{step / 4}')"
WAIT_FOR_FILE = """
import pathlib, threading
if not pathlib.Path('/mnt/rlt/go').exists():
    threading.Event().wait()
"""
END_TIMEOUT_S = 300.0
"""Timeout for a small Ray cluster and its command on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def _kueue(cluster: Cluster) -> Iterator[None]:
    if not cluster.layout:
        pytest.skip("Kueue needs the embedded cluster")
    with kueue(cluster):
        yield


@pytest.fixture
def queue(cluster: Cluster, namespace: str) -> str:
    """A queue with a quota for the pods of one small job."""
    manage_namespace(cluster, namespace)
    quota = [{"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "5Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "anything", "resources": quota}]}
    cluster.apply(
        build_manifest("ResourceFlavor", "anything", {}),
        build_manifest("ClusterQueue", "all-teams", {"namespaceSelector": {}, "resourceGroups": [group]}),
        build_manifest("LocalQueue", QUEUE, {"clusterQueue": "all-teams"}, namespace=namespace),
    )
    return QUEUE


def build_manifest(kind: str, name: str, spec: dict[str, object], **metadata: str) -> dict[str, object]:
    """Build an object of Kueue's API."""
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def list_pods(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the names of the pods in the job's Ray cluster."""
    return cluster.kubectl("-n", namespace, "get", "pods", "-l", f"ray.io/cluster={name}", "-o", "name")


def get_transition_time(job: Job, kind: str) -> str:
    """Return the last transition time of the condition as RFC 3339 in UTC: later times are greater."""
    return str(get_condition(job, kind)["lastTransitionTime"])


def test_second_job_runs_after_the_first(cluster: Cluster, namespace: str, queue: str) -> None:
    first, second = (build_command_job(name, "python3", "-c", PROGRAM) for name in ("first", "second"))
    first["spec"]["scheduling"] = {"queueName": queue}
    second["metadata"]["labels"] = {QUEUE_LABEL: queue}  # as Kueue's users write it
    apply_job(cluster, namespace, first)
    await_condition(cluster, namespace, "first", "Admitted", timeout_s=EVENT_TIMEOUT_S)
    apply_job(cluster, namespace, second)

    waiting = await_job(
        cluster,
        namespace,
        "second",
        lambda job: "insufficient unused quota for cpu" in get_condition(job, "Admitted")["message"],
        what="Kueue's message",
        timeout_s=EVENT_TIMEOUT_S,
    )
    assert (get_condition(waiting, "Admitted")["status"], waiting["status"]["phase"]) == ("False", "Pending")
    ray_cluster = json.loads(cluster.kubectl("-n", namespace, "get", "raycluster", "second", "-o", "json"))
    assert ray_cluster["spec"]["suspend"] is True
    assert not list_pods(cluster, namespace, "second")
    assert not is_true(read_job(cluster, namespace, "first"), "Succeeded"), "the second waited for the first"

    ended = [
        await_condition(cluster, namespace, name, "Succeeded", timeout_s=END_TIMEOUT_S) for name in ("first", "second")
    ]
    assert [job["status"]["progress"]["step"] for job in ended] == [3, 3]
    assert get_transition_time(ended[1], "Admitted") >= get_transition_time(ended[0], "Succeeded")


def test_evicted_job_runs_again(cluster: Cluster, namespace: str, queue: str) -> None:
    go = cluster.shared_volume(namespace, CLAIM) / "go"
    go.unlink(missing_ok=True)  # the folder is not deleted with the namespace
    job = build_command_job("evicted", "python3", "-c", WAIT_FOR_FILE + PROGRAM)
    job["spec"] |= {"scheduling": {"queueName": queue}, "storage": {"claimName": CLAIM}}
    apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, "evicted", "Running", timeout_s=END_TIMEOUT_S)

    set_stop_policy(cluster, "HoldAndDrain")
    evicted = await_job(
        cluster,
        namespace,
        "evicted",
        lambda job: get_condition(job, "Admitted")["status"] == "False" and job["status"]["phase"] == "Pending",
        what="the eviction",
        timeout_s=EVENT_TIMEOUT_S,
    )
    assert not is_true(evicted, "Failed")
    go.touch()
    set_stop_policy(cluster, "None")
    await_condition(cluster, namespace, "evicted", "Succeeded", timeout_s=END_TIMEOUT_S)


def set_stop_policy(cluster: Cluster, policy: str) -> None:
    """Set the policy. HoldAndDrain evicts admitted jobs and admits no jobs until the policy is None."""
    patch = json.dumps({"spec": {"stopPolicy": policy}})
    cluster.kubectl("patch", "clusterqueue", "all-teams", "--type=merge", "--patch", patch)


@pytest.mark.long
def test_added_pods_wait_for_quota_beside_the_training(cluster: Cluster, namespace: str, queue: str) -> None:
    """The quota is for the head, the train worker and two of three rollout pods."""
    set_quota(cluster, cpu="2800m", memory="24Gi")
    cluster.shared_volume(namespace, CLAIM)
    numbers = {"minReplicas": 1, "maxReplicas": 3}
    job = build_job("elastic", rollout_pods=1, rollout_group=numbers)
    job["spec"]["scheduling"] = {"queueName": queue}
    job["spec"]["training"]["totalSteps"] = 1000
    job["spec"]["cluster"]["workers"][1]["resources"]["cpu"] = "400m"  # three of them fit on the nodes
    apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, "elastic", "Running", timeout_s=START_TIMEOUT_S)

    set_rollout_replicas(cluster, namespace, 2)
    await_ready(cluster, namespace, "The head and 3 of 3 workers are ready")
    set_rollout_replicas(cluster, namespace, 3)
    waiting = await_ready(cluster, namespace, f"Waiting for admission by queue {queue}")
    message = get_condition(waiting, "ClusterReady")["message"]
    assert "insufficient unused quota for cpu" in message
    assert is_true(waiting, "Admitted")
    await_steps(cluster, namespace, waiting)

    set_quota(cluster, cpu="4", memory="24Gi")
    await_ready(cluster, namespace, "The head and 4 of 4 workers are ready")
    set_rollout_replicas(cluster, namespace, 1)
    fewer = await_ready(cluster, namespace, "The head and 2 of 2 workers are ready")
    later = await_steps(cluster, namespace, fewer)
    assert not later["status"].get("attempts")


def set_quota(cluster: Cluster, **quota: str) -> None:
    """Set the quota of the queue."""
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    path = "/spec/resourceGroups/0/flavors/0/resources"
    patch = json.dumps([{"op": "replace", "path": path, "value": resources}])
    cluster.kubectl("patch", "clusterqueue", "all-teams", "--type=json", "--patch", patch)


def set_rollout_replicas(cluster: Cluster, namespace: str, number: int) -> None:
    """Set the number of rollout pods, as `rlt scale` does."""
    patch = json.dumps({"spec": {"rolloutReplicas": number}})
    cluster.kubectl("-n", namespace, "patch", "rltrainingjob", "elastic", "--type=merge", "--patch", patch)


def await_steps(cluster: Cluster, namespace: str, before: Job) -> Job:
    """Wait for two more steps than the job had before."""
    wanted = get_step(before) + 2

    def has_steps(job: Job) -> bool:
        return get_step(job) >= wanted

    return await_job(cluster, namespace, "elastic", has_steps, what=f"step {wanted}", timeout_s=EVENT_TIMEOUT_S)


def await_ready(cluster: Cluster, namespace: str, text: str) -> Job:
    """Wait until ClusterReady is True with this text."""

    def wanted(job: Job) -> bool:
        return is_true(job, "ClusterReady") and text in get_condition(job, "ClusterReady")["message"]

    return await_job(cluster, namespace, "elastic", wanted, what=text, timeout_s=EVENT_TIMEOUT_S)
