"""Training runs on a cluster from start to end.

- example 01 learns on two nodes while both operators, of rlt and of KubeRay, are killed;
- example 02 trains on GSM8K questions.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from statistics import mean

import pytest

from chaos.faults import kill_kuberay, kill_operator
from chaos.pods import Target
from cluster import Cluster
from installation import CLAIM, RELEASE, SYSTEM_NAMESPACE
from jobs import (
    START_TIMEOUT_S,
    apply_job,
    await_cleanup,
    await_condition,
    await_job,
    get_image,
    get_mount_path,
    get_step,
    list_pods,
    load_example,
    read_job,
    read_metrics,
    run_on_volume,
)

pytestmark = pytest.mark.cluster

GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k"


def test_arithmetic_learns_while_the_operators_are_killed(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, load_example("01-arithmetic-grpo.yaml"))
    job = await_job(cluster, namespace, name, lambda job: get_step(job) >= 5, what="step 5", timeout_s=START_TIMEOUT_S)
    pods = list_pods(cluster, namespace, name)
    workers = [node for pod, (_, node) in pods.items() if "-head-" not in pod]
    assert len(set(workers)) == len(workers) == 2, "each worker is on a node of its own"

    if cluster.layout:
        target = Target(cluster, namespace, name, cluster.shared_volume(namespace, CLAIM))
        kill_kuberay(target)
        kill_operator(target, kills=2, within_s=10.0)
    else:
        cluster.kubectl("-n", SYSTEM_NAMESPACE, "delete", "pod", "-l", f"app.kubernetes.io/name={RELEASE}", "--now")
    killed_at = get_step(read_job(cluster, namespace, name))
    later = await_job(
        cluster, namespace, name, lambda job: get_step(job) > killed_at + 5, what="new steps", timeout_s=120
    )
    assert later["status"]["rayCluster"]["jobId"] == job["status"]["rayCluster"]["jobId"]
    assert list_pods(cluster, namespace, name) == pods, "no pod was replaced"

    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=1200)
    metrics = read_metrics(cluster, namespace, done)
    rewards = [line["critic/rewards/mean"] for line in metrics]
    assert [line["training/global_step"] for line in metrics] == list(range(1, len(metrics) + 1))
    # The curve is the same in every run on one kind of processor. Others round differently.
    assert mean(rewards[-40:]) >= 1.4 * mean(rewards[:10]), rewards
    progress = done["status"]["progress"]
    assert (progress["step"], progress["display"]) == (progress["totalSteps"], "100%")
    assert progress["metrics"]["reward"] == pytest.approx(rewards[-1], rel=1e-3)

    cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{name}", "--timeout=120s")
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait")
    await_cleanup(cluster, namespace, name)


@pytest.mark.skipif(not GSM8K.exists(), reason=f"GSM8K is not at {GSM8K}")
def test_gsm8k_prompts_contain_its_questions(cluster: Cluster, namespace: str) -> None:
    if not cluster.layout:
        pytest.skip("needs a volume of the embedded cluster, which this machine can write")
    shared = cluster.shared_volume(namespace, CLAIM)
    shutil.copytree(GSM8K, shared / "gsm8k")
    name = apply_job(cluster, namespace, load_example("02-gsm8k-grpo.yaml"))
    done = await_condition(cluster, namespace, name, "Succeeded", timeout_s=1200)
    metrics = read_metrics(cluster, namespace, done)
    assert len(metrics) == 3
    assert all(math.isfinite(value) for line in metrics for value in line.values())
    directory = done["status"]["checkpoint"]["path"] + "/.."
    read = ["cat", f"{directory}/rollouts/step-1.jsonl"]
    rollouts = run_on_volume(cluster, namespace, read, get_image(done), get_mount_path(done))
    questions = [json.loads(line)["question"] for line in (GSM8K / "train.jsonl").read_text().splitlines()]
    prompts = [json.loads(line)["prompt"] for line in rollouts.splitlines()]
    assert prompts
    assert all(any(question in prompt for question in questions) for prompt in prompts)
