"""Example 05 on a cluster: an engine of two separate pods, and generation one step ahead of training."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.jobs import (
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_condition,
    get_condition,
    get_image,
    get_mount_path,
    load_example,
    read_metrics,
    run_on_volume,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long]

STEPS = 12
TRAIN = 0
"""The rank of the one train worker in spans."""
ROLLOUT = 1
"""The rank of the engine in spans. Ray starts its processes only in pods with the resource of the group rollout."""


@pytest.fixture
def asynchronous() -> Job:
    """Example 05 with fewer steps, and with vLLM, whose two workers are in their own pods."""
    job = load_example("05-asynchronous.yaml")
    job["spec"]["rollout"] |= {"engine": "vllm", "tensorParallelSize": 2}
    job["spec"]["cluster"]["workers"][1]["replicas"] = 2
    job["spec"]["training"]["totalSteps"] = STEPS
    return job


def worker_groups(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Return the worker group of each worker pod in the job."""
    selector = f"ray.io/cluster={name},ray.io/node-type=worker"
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", "json"))["items"]
    return sorted(pod["metadata"]["labels"]["ray.io/group"] for pod in pods)


def read_spans(cluster: Cluster, namespace: str, job: Job) -> list[dict[str, Any]]:
    """Read the lines of the run's spans.jsonl: process, phase, start and end."""
    spans = job["status"]["checkpoint"]["path"] + "/../spans.jsonl"
    text = run_on_volume(cluster, namespace, ["cat", spans], get_image(job), get_mount_path(job))
    return [json.loads(line) for line in text.splitlines()]


def assert_preflight_passed(job: Job) -> None:
    """The preflight has checked the pods of both groups and the head over their actual network."""
    assert get_condition(job, "PreflightPassed")["reason"] == "Checked"
    checks = {check["name"]: check for check in job["status"]["preflight"]}
    assert [name for name, check in checks.items() if check["result"] == "failed"] == []
    assert checks["ranks"]["value"] == "3 processes"
    assert checks["run-directory"]["message"] == (
        "All pods can write, rename and sync files in it, and see each other's files."
    )
    assert checks["connections"]["value"] == "6 of 6"
    assert "gloo, 3 ranks" in checks["all-reduce"]["message"]
    assert float(checks["all-reduce"]["value"].removesuffix(" GB/s")) > 0


def test_one_group_generates_while_the_other_trains(cluster: Cluster, namespace: str, asynchronous: Job) -> None:
    name = apply_job(cluster, namespace, asynchronous)
    job = await_condition(cluster, namespace, name, "Running", timeout_s=START_TIMEOUT_S)
    assert worker_groups(cluster, namespace, name) == ["rollout", "rollout", "train"]
    assert_preflight_passed(job)
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)

    metrics = read_metrics(cluster, namespace, done)
    assert [line["training/global_step"] for line in metrics] == list(range(1, STEPS + 1))
    assert all(line["training/weight_sync_difference"] < 1e-4 for line in metrics), "every sync was verified"
    assert metrics[0]["training/rollout_probs_diff_max"] < 1e-4
    assert max(line["training/rollout_probs_diff_max"] for line in metrics[1:]) > 1e-4, "one step off"

    spans = read_spans(cluster, namespace, done)
    train, rollout = ({span["phase"] for span in spans if span["rank"] == rank} for rank in (TRAIN, ROLLOUT))
    assert "gen" in rollout - train
    assert "update_actor" in train - rollout
