"""Three faults of `make chaos` that end an attempt, in one job: each is named, and the result is the same.

test_cli.py has the two shortest faults that end none. One worker starts sooner than the two of `make chaos`.
"""

from __future__ import annotations

import pytest

from rlt_e2e.chaos.faults import Injected, kill_head_pod, kill_rank, kill_worker_pod
from rlt_e2e.chaos.jobs import STEPS, build_job
from rlt_e2e.chaos.measure import describe, read_result
from rlt_e2e.chaos.pods import Target
from rlt_e2e.cluster import Cluster
from rlt_e2e.installation import CLAIM
from rlt_e2e.jobs import START_TIMEOUT_S, Job, apply_job, await_condition, await_job, get_step, is_true

pytestmark = [pytest.mark.cluster, pytest.mark.long]

NAMED_TIMEOUT_S = 300.0
"""`make chaos` measures the time. Here the machine may be busy."""
FAULTS = (kill_rank, kill_worker_pod, kill_head_pod)


def test_three_faults_are_named_and_leave_the_result_unchanged(cluster: Cluster, namespace: str) -> None:
    if not cluster.layout:
        pytest.skip("needs the processes of the embedded cluster")
    volume = cluster.shared_volume(namespace, CLAIM)
    undisturbed = apply_job(cluster, namespace, build_job("undisturbed", workers=1))
    await_condition(cluster, namespace, undisturbed, "Succeeded", timeout_s=START_TIMEOUT_S)
    name = apply_job(cluster, namespace, build_job("disturbed", workers=1))
    target = Target(cluster, namespace, name, volume)

    def await_step_after(job: Job, attempts: int) -> Job:
        """Wait for a new step of the current attempt, which follows this number of others.

        The status keeps the progress of the last attempt, which was ahead of `job`, until the next one reports.
        """

        def wanted(now: Job) -> bool:
            ended = now["status"].get("attempts", [])
            last = max([get_step(job), *(each.get("step", 0) for each in ended)])
            return len(ended) == attempts and is_true(now, "Running") and get_step(now) > last

        return await_job(cluster, namespace, name, wanted, what="a new step", timeout_s=START_TIMEOUT_S)

    job = await_step_after({"status": {}}, 0)
    for attempts, fault in enumerate(FAULTS, start=1):
        injected = fault(target)
        await_name(cluster, target, injected)
        job = await_step_after(job, attempts)

    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    assert [each["reason"] for each in done["status"]["attempts"]] == ["ProgramFailed", "Disrupted", "Disrupted"]
    assert (done["status"]["restarts"], done["status"]["disruptions"]) == (1, 2)
    expected, result = (read_result(volume, job) for job in (undisturbed, name))
    assert list(expected.metrics) == list(range(1, STEPS + 1))
    assert result == expected


def await_name(cluster: Cluster, target: Target, injected: Injected) -> None:
    """Wait until the status names the fault."""
    await_job(
        cluster,
        target.namespace,
        target.job,
        lambda job: all(part in describe(job) for part in injected.named_by),
        what=f"the name of the fault: {injected}",
        timeout_s=NAMED_TIMEOUT_S,
    )
