"""The status reports failures with the message of the component that detects them. Jobs can be deleted at any time."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from uuid import uuid4

import pytest

from rlt_e2e.cluster import Cluster
from rlt_e2e.installation import CLAIM
from rlt_e2e.jobs import (
    EVENT_TIMEOUT_S,
    Job,
    apply_job,
    await_cleanup,
    await_condition,
    await_job,
    build_command_job,
    build_learning_job,
    get_condition,
    get_step,
    is_true,
    list_objects,
    list_pods,
    load_example,
    read_job,
    run_rlt,
)
from rlt_pod.report.driver_report import PROGRESS_PREFIX

pytestmark = pytest.mark.cluster

START_TIMEOUT_S = 300.0
"""Timeout for a small Ray cluster to start on a busy machine."""
FOREVER = ("python3", "-c", "import threading; threading.Event().wait()")


def delete(cluster: Cluster, namespace: str, name: str) -> None:
    """Delete the job and wait until its objects are deleted."""
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait", "--timeout=300s")
    await_cleanup(cluster, namespace, name)


@pytest.mark.long
def test_a_missing_model_is_reported_and_the_job_is_not_restarted(cluster: Cluster, namespace: str) -> None:
    example = load_example("01-arithmetic-grpo.yaml")
    example["spec"]["model"] = {"path": "/models/none-such"}
    example["spec"]["cluster"]["workers"][0]["replicas"] = 1
    name = apply_job(cluster, namespace, example)
    failed = await_condition(cluster, namespace, name, "Failed", timeout_s=START_TIMEOUT_S)
    assert "/models/none-such" in get_condition(failed, "Failed")["message"]
    assert "/models/none-such" in failed["status"]["message"]
    await_cleanup(cluster, namespace, name, keep="configmap")  # the Ray cluster is released and not recreated
    assert is_true(read_job(cluster, namespace, name), "Failed")
    delete(cluster, namespace, name)


def test_the_logs_of_all_attempts_outlive_their_pods(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """The second attempt finds the file that the first has written, and prints steps, which the status reports.

    status.attempts reports the first.
    """
    file = f"/mnt/rlt/{uuid4()}"
    printed = "Total training steps: 4\n" + "".join(
        f"step:{step} - critic/rewards/mean:{step / 8} - actor/kl_loss:0.01\n" for step in range(1, 5)
    )
    script = f"test -e {file} && printf %s '{printed}' && exit; touch {file}; echo the disk is full >&2; exit 3"
    job = build_command_job("again", "sh", "-c", script)
    job["spec"] |= {"storage": {"claimName": CLAIM}, "failurePolicy": {"maxRestarts": 1}}
    name = apply_job(cluster, namespace, job)
    twice_s = 2 * START_TIMEOUT_S
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=twice_s)
    (attempt,) = done["status"]["attempts"]
    assert (attempt["number"], attempt["reason"], attempt.get("nodeAtFault")) == (1, "ProgramFailed", None)
    assert "the disk is full" in attempt["message"]
    events = cluster.kubectl("-n", namespace, "get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert events.count("Restarting") == 1
    assert done["status"]["restarts"] == 1
    progress = done["status"]["progress"]
    assert (progress["step"], progress["totalSteps"], progress["display"]) == (4, 4, "100%")
    assert (progress["metrics"]["reward"], progress["metrics"]["kl"]) == (0.5, 0.01)
    await_cleanup(cluster, namespace, name, keep="configmap")

    def rlt(*arguments: str | Path) -> str:
        return run_rlt(cluster, *arguments, "-n", namespace).stdout

    *lines, report = rlt("logs", name).splitlines()
    assert lines == printed.splitlines()
    assert report.startswith(PROGRESS_PREFIX)
    assert rlt("logs", name, "--attempt", "1") == "the disk is full\n"
    files = {each["path"] for each in json.loads(rlt("logs", name, "--list", "-o", "json"))}
    pods = {path.split("/")[2] for path in files if path.startswith("1/ray/") and path.endswith("/raylet.out")}
    assert {"1/program.log", "2/program.log"} < files
    assert len(pods) == 2, "the head and the worker of the first attempt"
    assert "raylet" in rlt("logs", name, "--attempt", "1", "--file", f"ray/{min(pods)}/raylet.out")
    rlt("bundle", name, "--file", tmp_path / "bundle.tar.gz")
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        kept = archive.extractfile(f"{name}-bundle/attempts/1/program.log")
        assert kept
        assert kept.read() == b"the disk is full\n"
    pods_left = cluster.kubectl("-n", namespace, "get", "pods", "-o", "name").split()
    assert [pod for pod in pods_left if f"{name}-logs-" in pod] == []
    delete(cluster, namespace, name)


SIGNAL_RANK = """
import os, pathlib, signal, sys
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        title = path.read_bytes()
    except OSError:
        continue
    if title.startswith(b"ray::TrainWorker"):
        os.kill(int(path.parent.name), getattr(signal, sys.argv[1]))
"""


def signal_rank(cluster: Cluster, namespace: str, name: str, signal: str) -> str:
    """Send a signal to the train worker of a worker pod of the job, and return the name of the pod."""
    worker = next(pod for pod in list_pods(cluster, namespace, name) if "-head-" not in pod)
    cluster.kubectl("-n", namespace, "exec", worker, "--", "python3", "-c", SIGNAL_RANK, signal)
    return worker


@pytest.mark.long
def test_a_killed_rank_is_followed_by_an_attempt_on_the_same_cluster(cluster: Cluster, namespace: str) -> None:
    """No pod is replaced, and the second attempt resumes from the checkpoint of the first."""
    job = build_learning_job("killed", steps=16, save_freq=2)
    job["spec"]["failurePolicy"] = {"maxRestarts": 1, "restartPolicy": "InPlace"}
    name = apply_job(cluster, namespace, job)
    await_job(cluster, namespace, name, lambda job: get_step(job) >= 4, what="step 4", timeout_s=2 * START_TIMEOUT_S)
    first = set(list_pods(cluster, namespace, name))
    signal_rank(cluster, namespace, name, "SIGKILL")
    again = await_job(
        cluster,
        namespace,
        name,
        lambda job: job["status"]["currentAttempt"].get("execution") == 2 and get_step(job) >= 5,
        what="a step of the second execution",
        timeout_s=START_TIMEOUT_S,
    )
    assert set(list_pods(cluster, namespace, name)) == first
    (attempt,) = again["status"]["attempts"]
    assert (attempt["reason"], attempt.get("execution", 1)) == ("ProgramFailed", 1)
    assert attempt["rayClusterUid"] == again["status"]["currentAttempt"]["rayClusterUid"]
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=START_TIMEOUT_S)
    assert done["status"]["restarts"] == 1
    log = run_rlt(cluster, "logs", name, "--attempt", "2", "-n", namespace).stdout
    resumed = [int(each) for each in re.findall(r"^step:(\d+) - ", log, re.MULTILINE)]
    assert resumed == list(range(resumed[0], 17))
    assert resumed[0] - 1 in range(2, 17, 2), "a step with a checkpoint"
    delete(cluster, namespace, name)


@pytest.mark.long
def test_a_rank_that_hangs_leaves_the_stacks_and_the_next_attempt_resumes(cluster: Cluster, namespace: str) -> None:
    job = build_learning_job("hangs", steps=2000, save_freq=2)
    job["spec"]["cluster"]["terminationGracePeriodSeconds"] = 30
    job["spec"]["failurePolicy"] = {"maxRestarts": 1, "progressDeadlineSeconds": 100}
    name = apply_job(cluster, namespace, job)

    def await_step(step: int) -> Job:
        what = f"step {step}"
        return await_job(
            cluster, namespace, name, lambda job: get_step(job) >= step, what=what, timeout_s=2 * START_TIMEOUT_S
        )

    await_step(4)
    worker = signal_rank(cluster, namespace, name, "SIGSTOP")
    hung = await_job(
        cluster,
        namespace,
        name,
        lambda job: bool(job["status"].get("attempts")),
        what="the end of the attempt",
        timeout_s=2 * START_TIMEOUT_S,
    )
    (attempt,) = hung["status"]["attempts"]
    assert attempt["reason"] == "NoProgress"
    assert f"the last finished step is {attempt['step']}." in attempt["message"]
    assert "/attempts/1/stacks" in attempt["message"]
    late = rf"1 of 2 processes of TrainWorker(\.\w+)? (is elsewhere|cannot run): {worker} .*\[state: T \(stopped\)\]"
    assert re.search(late, attempt["message"])
    resumed = await_step(attempt["step"] + 1)
    assert resumed["status"]["restarts"] == 1
    run_rlt(cluster, "cancel", name, "-n", namespace)  # the training would use the cores meanwhile

    listed = run_rlt(cluster, "logs", name, "--list", "-o", "json", "-n", namespace).stdout
    stacks = [each["path"] for each in json.loads(listed) if each["path"].startswith("1/stacks/")]
    texts = {}
    for path in stacks:
        shown = run_rlt(cluster, "logs", name, "--attempt", "1", "--file", path.removeprefix("1/"), "-n", namespace)
        texts[path] = shown.stdout
    ranks = {path: text for path, text in texts.items() if text.startswith("ray::TrainWorker")}
    assert len(ranks) == 2
    (stopped,) = (path for path, text in ranks.items() if "state: T (stopped)" in text)
    assert worker in stopped
    assert all('"MainThread"' in text for text in ranks.values())
    # The ranks can be between two methods when one is stopped. The driver waits for them in any case.
    assert any("rlt_trainer/driver/" in text for text in texts.values())
    log = run_rlt(cluster, "logs", name, "--attempt", "1", "-n", namespace).stdout
    assert f"step:{attempt['step']} - " in log
    delete(cluster, namespace, name)


def test_deletion_while_provisioning(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, build_command_job("early", *FOREVER))
    await_job(
        cluster,
        namespace,
        name,
        lambda job: job["status"].get("phase") == "Provisioning",
        what="Provisioning",
        timeout_s=EVENT_TIMEOUT_S,
    )
    delete(cluster, namespace, name)


def test_job_created_suspended_has_no_pods_and_is_deleted(cluster: Cluster, namespace: str) -> None:
    job = build_command_job("later", "true")
    job["spec"]["suspend"] = True
    name = apply_job(cluster, namespace, job)
    await_condition(cluster, namespace, name, "Suspended", timeout_s=EVENT_TIMEOUT_S)
    assert [each for each in list_objects(cluster, namespace, name) if "raycluster" in each or "pod" in each] == []
    delete(cluster, namespace, name)
