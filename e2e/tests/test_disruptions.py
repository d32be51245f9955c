"""A job without restarts survives the eviction of a worker: it saves a checkpoint before the pods end, and resumes."""

from __future__ import annotations

import json

import pytest

from cluster import Cluster
from jobs import (
    START_TIMEOUT_S,
    apply_job,
    await_cleanup,
    await_condition,
    await_job,
    get_step,
    list_pods,
    load_example,
    read_metrics,
)

pytestmark = pytest.mark.cluster

STEPS = 60
RELEASE_TIMEOUT_S = 20.0
"""Timeout for the pods of a job that has ended. Their grace period is 300 s."""


def test_evicted_worker_resumes_from_the_checkpoint_of_its_termination(cluster: Cluster, namespace: str) -> None:
    """The job saves no other checkpoint, and the metrics have each step once."""
    example = load_example("01-arithmetic-grpo.yaml")
    example["spec"]["rollout"] |= {"engine": "transformers"}
    example["spec"]["training"] |= {"totalSteps": STEPS, "warmup": {"steps": 10}}
    example["spec"] |= {"checkpoint": {"saveFreq": 10 * STEPS}}
    name = apply_job(cluster, namespace, example)
    await_job(cluster, namespace, name, lambda job: get_step(job) >= 3, what="three steps", timeout_s=START_TIMEOUT_S)
    worker = next(pod for pod in sorted(list_pods(cluster, namespace, name)) if "-head-" not in pod)
    with pytest.raises(ValueError, match="violate the pod's disruption budget"):
        evict(cluster, namespace, worker)
    cluster.kubectl("-n", namespace, "delete", "poddisruptionbudget", f"{name}-pods")
    evict(cluster, namespace, worker)

    disrupted = await_job(
        cluster, namespace, name, lambda job: bool(job["status"].get("attempts")), what="an attempt", timeout_s=120
    )
    (attempt,) = disrupted["status"]["attempts"]
    assert (attempt["reason"], attempt["disruption"]) == ("Disrupted", "EvictionByEvictionAPI")
    assert worker in attempt["message"]
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    await_cleanup(cluster, namespace, name, keep="configmap", timeout_s=RELEASE_TIMEOUT_S)
    assert (done["status"]["restarts"], done["status"]["disruptions"]) == (0, 1)
    steps = [line["step"] for line in read_metrics(cluster, namespace, done)]
    assert steps == [*range(1, STEPS + 1)], "it resumed after its last step"
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait")
    await_cleanup(cluster, namespace, name)


def evict(cluster: Cluster, namespace: str, pod: str) -> None:
    """Evict the pod by the API, as `kubectl drain` does. Raises ValueError if its disruption budget forbids it."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
