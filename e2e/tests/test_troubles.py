"""What goes wrong is said in the status, in the words of whoever noticed it; and deletion works at any moment."""

from __future__ import annotations

from uuid import uuid4

import pytest

from cluster import Cluster
from installation import CLAIM
from jobs import apply_job, await_job, await_nothing, command_job, condition, holds, load_example, read_job, things_of

pytestmark = pytest.mark.cluster

UP_S = 300.0
"""The most that a small Ray cluster may take to come up on a busy machine."""
FOREVER = ("python3", "-c", "import threading; threading.Event().wait()")


def delete(cluster: Cluster, namespace: str, name: str) -> None:
    """Delete the job and await that nothing is left of it."""
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait", "--timeout=60s")
    await_nothing(cluster, namespace, name)


def test_unschedulable_job_quotes_the_scheduler_and_is_deleted_while_pending(cluster: Cluster, namespace: str) -> None:
    job = command_job("too-big", "true", workers=[{"replicas": 1, "resources": {"cpu": "512", "memory": "2Gi"}}])
    name = apply_job(cluster, namespace, job)
    said = await_job(
        cluster,
        namespace,
        name,
        lambda job: "Insufficient cpu" in condition(job, "ClusterReady")["message"],
        what="the scheduler's words",
        timeout_s=60,
    )
    assert said["status"]["phase"] == "Pending"
    assert "Insufficient cpu" in said["status"]["message"]
    delete(cluster, namespace, name)


def test_missing_image_quotes_the_kubelet(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, command_job("no-image", "true", image="localhost/rlt-nothing:1"))
    await_job(
        cluster,
        namespace,
        name,
        lambda job: "localhost/rlt-nothing:1" in condition(job, "ClusterReady")["message"],
        what="the kubelet's words",
        timeout_s=60,
    )
    delete(cluster, namespace, name)


def test_failing_command_is_quoted_and_not_repeated(cluster: Cluster, namespace: str) -> None:
    words = "reward model /models/judge is not there"
    name = apply_job(cluster, namespace, command_job("fails", "python3", "-c", f"raise SystemExit({words!r})"))
    failed = await_job(cluster, namespace, name, lambda job: holds(job, "Failed"), what="Failed", timeout_s=UP_S)
    assert words in condition(failed, "Failed")["message"]
    assert words in failed["status"]["message"]
    await_nothing(cluster, namespace, name, but="configmap")  # the cluster is let go, and no other one is made
    assert holds(read_job(cluster, namespace, name), "Failed")
    delete(cluster, namespace, name)


def test_second_attempt_goes_on_where_the_first_one_failed(cluster: Cluster, namespace: str) -> None:
    """What the first one has left in the storage the second one finds, and status.attempts tells of the first."""
    mark = f"/mnt/rlt/{uuid4()}"
    script = f"test -e {mark} && exit; touch {mark}; echo the disk is full >&2; exit 3"
    job = command_job("again", "sh", "-c", script)
    job["spec"] |= {"storage": {"claimName": CLAIM}, "failurePolicy": {"maxRestarts": 1}}
    name = apply_job(cluster, namespace, job)
    twice_s = 2 * UP_S
    done = await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="Succeeded", timeout_s=twice_s)
    (attempt,) = done["status"]["attempts"]
    assert (attempt["number"], attempt["reason"], attempt.get("nodeAtFault")) == (1, "ProgramFailed", None)
    assert "the disk is full" in attempt["message"]
    told = cluster.kubectl("-n", namespace, "get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert told.count("Restarting") == 1
    assert done["status"]["restarts"] == 1
    delete(cluster, namespace, name)


def test_missing_model_is_named(cluster: Cluster, namespace: str) -> None:
    example = load_example("01-arithmetic-grpo.yaml")
    example["spec"]["model"] = {"path": "/models/none-such"}
    example["spec"]["cluster"]["workers"][0]["replicas"] = 1
    name = apply_job(cluster, namespace, example)
    failed = await_job(cluster, namespace, name, lambda job: holds(job, "Failed"), what="Failed", timeout_s=UP_S)
    assert "/models/none-such" in condition(failed, "Failed")["message"]
    delete(cluster, namespace, name)


def test_deletion_while_provisioning(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, command_job("early", *FOREVER))
    await_job(
        cluster,
        namespace,
        name,
        lambda job: job["status"].get("phase") == "Provisioning",
        what="Provisioning",
        timeout_s=60,
    )
    delete(cluster, namespace, name)


def test_deletion_while_running(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, command_job("runs", *FOREVER))
    await_job(cluster, namespace, name, lambda job: holds(job, "Running"), what="Running", timeout_s=UP_S)
    delete(cluster, namespace, name)


def test_command_reports_the_steps_that_it_prints_and_is_deleted_after_success(
    cluster: Cluster, namespace: str
) -> None:
    program = (
        "print('Total training steps: 4')\n"
        "for step in range(1, 5): print(f'step:{step} - critic/rewards/mean:{step / 8} - actor/kl_loss:0.01')"
    )
    name = apply_job(cluster, namespace, command_job("prints", "python3", "-c", program))
    done = await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=UP_S)
    progress = done["status"]["progress"]
    assert (progress["step"], progress["totalSteps"], progress["display"]) == (4, 4, "100%")
    assert (progress["metrics"]["reward"], progress["metrics"]["kl"]) == (0.5, 0.01)
    delete(cluster, namespace, name)


def test_suspended_from_the_start_makes_nothing_and_is_deleted(cluster: Cluster, namespace: str) -> None:
    job = command_job("later", "true")
    job["spec"]["suspend"] = True
    name = apply_job(cluster, namespace, job)
    await_job(cluster, namespace, name, lambda job: holds(job, "Suspended"), what="Suspended", timeout_s=60)
    assert [each for each in things_of(cluster, namespace, name) if "raycluster" in each or "pod" in each] == []
    delete(cluster, namespace, name)
