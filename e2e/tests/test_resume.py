"""A job that is suspended with `rlt` resumes from its checkpoint. test_chaos.py has the end of an attempt by faults."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cluster import Cluster
from jobs import (
    START_TIMEOUT_S,
    Job,
    apply_job,
    await_cleanup,
    await_job,
    load_example,
    read_job,
    read_metrics,
    run_rlt,
)

pytestmark = pytest.mark.cluster


def test_job_resumes_from_its_checkpoint_after_a_suspension(cluster: Cluster, namespace: str) -> None:
    example = load_example("01-arithmetic-grpo.yaml")
    example["spec"]["rollout"] |= {"engine": "transformers"}
    example["spec"]["training"] |= {"totalSteps": 2000, "warmup": {"steps": 10}}
    example["spec"] |= {"checkpoint": {"saveFreq": 2}}
    name = apply_job(cluster, namespace, example)

    def await_saved_step(step: int) -> Job:
        return await_job(
            cluster,
            namespace,
            name,
            lambda job: get_saved_step(job) >= step,
            what=f"a checkpoint of step {step}",
            timeout_s=START_TIMEOUT_S,
        )

    first = await_saved_step(4)
    run_rlt(cluster, "suspend", name, "-n", namespace)
    run_rlt(cluster, "wait", name, "--for", "Suspended", "--timeout", "2m", "-n", namespace)
    cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{name}", "--timeout=120s")
    kept = get_saved_step(read_job(cluster, namespace, name))
    assert kept >= get_saved_step(first)
    run_rlt(cluster, "resume", name, "-n", namespace)
    second = await_saved_step(kept + 4)

    assert first["status"]["rayCluster"]["jobId"] != second["status"]["rayCluster"]["jobId"]
    steps = [line["step"] for line in read_metrics(cluster, namespace, second)]
    assert steps.count(1) == 1, "it did not start from the beginning"
    assert set(steps) == set(range(1, max(steps) + 1)), "no step is missing"
    repeated_from = [now for before, now in pairwise(steps) if now != before + 1]
    assert len(repeated_from) <= 1
    assert all((step - 1) % 2 == 0 and step - 1 >= get_saved_step(first) for step in repeated_from), (
        "it resumed from a checkpoint"
    )
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait")
    await_cleanup(cluster, namespace, name)


def get_saved_step(job: Job) -> int:
    """Return the step of the latest complete checkpoint in the status."""
    return int(job["status"].get("checkpoint", {}).get("latestStep", 0))
