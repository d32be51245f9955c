"""Kueue itself decides when jobs run.

- two jobs share a quota for one: the second waits for its place, and runs after the first;
- a job that Kueue takes back has not failed: it runs again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cluster import Cluster
from cluster.kueue import kueue, manage
from installation import CLAIM
from jobs import Job, apply_job, await_job, command_job, condition, holds, read_job

pytestmark = pytest.mark.cluster

QUEUE = "team"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PROGRAM = "for step in range(1, 4): print(f'step:{step} - critic/rewards/mean:{step / 4}')"
UNTIL_LET_GO = """
import pathlib, threading
if not pathlib.Path('/mnt/rlt/go').exists():
    threading.Event().wait()
"""
END_S = 300.0
"""The most that a small Ray cluster and its command may take on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def _kueue(cluster: Cluster) -> Iterator[None]:
    if not cluster.layout:
        pytest.skip("Kueue is installed on the embedded cluster alone")
    with kueue(cluster):
        yield


@pytest.fixture
def queue(cluster: Cluster, namespace: str) -> str:
    """A queue whose quota is enough for the pods of one small job and no more."""
    manage(cluster, namespace)
    quota = [{"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "5Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "anything", "resources": quota}]}
    cluster.apply(
        queue_object("ResourceFlavor", "anything", {}),
        queue_object("ClusterQueue", "all-teams", {"namespaceSelector": {}, "resourceGroups": [group]}),
        queue_object("LocalQueue", QUEUE, {"clusterQueue": "all-teams"}, namespace=namespace),
    )
    return QUEUE


def queue_object(kind: str, name: str, spec: dict[str, object], **metadata: str) -> dict[str, object]:
    """An object of Kueue's API."""
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def pods_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Names of the pods of a job's Ray cluster."""
    return cluster.kubectl("-n", namespace, "get", "pods", "-l", f"ray.io/cluster={name}", "-o", "name")


def since(job: Job, kind: str) -> str:
    """When the condition became what it is, as RFC 3339 in UTC: later moments are greater."""
    return str(condition(job, kind)["lastTransitionTime"])


def test_second_job_runs_after_the_first(cluster: Cluster, namespace: str, queue: str) -> None:
    first, second = (command_job(name, "python3", "-c", PROGRAM) for name in ("first", "second"))
    first["spec"]["scheduling"] = {"queueName": queue}
    second["metadata"]["labels"] = {QUEUE_LABEL: queue}  # as Kueue's users write it
    apply_job(cluster, namespace, first)
    await_job(cluster, namespace, "first", lambda job: holds(job, "Admitted"), what="Admitted", timeout_s=60)
    apply_job(cluster, namespace, second)

    waiting = await_job(
        cluster,
        namespace,
        "second",
        lambda job: "insufficient unused quota for cpu" in condition(job, "Admitted")["message"],
        what="Kueue's words",
        timeout_s=60,
    )
    assert (condition(waiting, "Admitted")["status"], waiting["status"]["phase"]) == ("False", "Pending")
    held = json.loads(cluster.kubectl("-n", namespace, "get", "raycluster", "second", "-o", "json"))
    assert held["spec"]["suspend"] is True
    assert not pods_of(cluster, namespace, "second")
    assert not holds(read_job(cluster, namespace, "first"), "Succeeded"), "the second waited for the first"

    ended = [
        await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=END_S)
        for name in ("first", "second")
    ]
    assert [job["status"]["progress"]["step"] for job in ended] == [3, 3]
    assert since(ended[1], "Admitted") >= since(ended[0], "Succeeded")


def test_job_that_is_taken_back_runs_again(cluster: Cluster, namespace: str, queue: str) -> None:
    go = cluster.shared_volume(namespace, CLAIM) / "go"
    go.unlink(missing_ok=True)  # the folder outlives the namespace
    job = command_job("evicted", "python3", "-c", UNTIL_LET_GO + PROGRAM)
    job["spec"] |= {"scheduling": {"queueName": queue}, "storage": {"claimName": CLAIM}}
    apply_job(cluster, namespace, job)
    await_job(cluster, namespace, "evicted", lambda job: holds(job, "Running"), what="Running", timeout_s=END_S)

    stop(cluster, "HoldAndDrain")
    back = await_job(
        cluster,
        namespace,
        "evicted",
        lambda job: condition(job, "Admitted")["status"] == "False" and job["status"]["phase"] == "Pending",
        what="taken back",
        timeout_s=60,
    )
    assert not holds(back, "Failed")
    go.touch()
    stop(cluster, "None")
    await_job(cluster, namespace, "evicted", lambda job: holds(job, "Succeeded"), what="the end", timeout_s=END_S)


def stop(cluster: Cluster, policy: str) -> None:
    """HoldAndDrain: the queue takes back what it has admitted, and admits nothing until this is None again."""
    patch = json.dumps({"spec": {"stopPolicy": policy}})
    cluster.kubectl("patch", "clusterqueue", "all-teams", "--type=merge", "--patch", patch)
