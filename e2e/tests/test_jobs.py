"""Jobs from apply to their end, on the whole cluster.

- example 01 learns, on two nodes, while the operator is killed and comes back;
- example 02 takes real GSM8K questions through every stage;
- a job that is suspended lets its cluster go, and resumes from its checkpoint; so does one whose Ray head is lost.
"""

from __future__ import annotations

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from cluster import Cluster
from environment import ROOT
from installation import CLAIM, RELEASE, SYSTEM_NAMESPACE
from jobs import (
    Job,
    apply_job,
    await_job,
    await_nothing,
    command_job,
    holds,
    image_of,
    load_example,
    mount_path,
    read_job,
    read_metrics,
    run_on_claim,
)

pytestmark = pytest.mark.cluster

GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k"
START_S = 600.0
"""The most that a Ray cluster, its engines and the first step may take on a busy machine."""


def pods_of(cluster: Cluster, namespace: str, name: str) -> dict[str, tuple[str, str]]:
    """Name -> (uid, node) of the job's pods."""
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", f"ray.io/cluster={name}", "-o", "json"))
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in pods["items"]}


def step_of(job: dict[str, object]) -> int:
    """Steps completed so far."""
    status = job["status"]
    assert isinstance(status, dict)
    return int(status.get("progress", {}).get("step", 0))


def test_arithmetic_learns_through_an_operator_restart(cluster: Cluster, namespace: str) -> None:
    name = apply_job(cluster, namespace, load_example("01-arithmetic-grpo.yaml"))
    job = await_job(cluster, namespace, name, lambda job: step_of(job) >= 5, what="step 5", timeout_s=START_S)
    pods = pods_of(cluster, namespace, name)
    workers = [node for pod, (_, node) in pods.items() if "-head-" not in pod]
    assert len(set(workers)) == len(workers) == 2, "the workers are on a node each"

    cluster.kubectl("-n", SYSTEM_NAMESPACE, "delete", "pod", "-l", f"app.kubernetes.io/name={RELEASE}", "--now")
    seen = step_of(read_job(cluster, namespace, name))
    later = await_job(
        cluster, namespace, name, lambda job: step_of(job) > seen + 5, what="the status catches up", timeout_s=120
    )
    assert later["status"]["rayCluster"]["jobId"] == job["status"]["rayCluster"]["jobId"]
    assert pods_of(cluster, namespace, name) == pods, "no pod was replaced"

    done = await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=1200)
    metrics = read_metrics(cluster, namespace, done)
    rewards = [line["critic/rewards/mean"] for line in metrics]
    assert [line["training/global_step"] for line in metrics] == list(range(1, len(metrics) + 1))
    assert mean(rewards[-5:]) >= 1.8 * mean(rewards[:5]), rewards
    assert mean(rewards[-5:]) >= 0.5, rewards
    progress = done["status"]["progress"]
    assert (progress["step"], progress["display"]) == (progress["totalSteps"], "100%")
    assert progress["metrics"]["reward"] == pytest.approx(rewards[-1], rel=1e-3)
    await_nothing_but_config(cluster, namespace, name)


def await_nothing_but_config(cluster: Cluster, namespace: str, name: str) -> None:
    """The finished job's cluster is gone, so that its accelerators are free; deletion then takes the rest."""
    cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{name}", "--timeout=120s")
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait")
    await_nothing(cluster, namespace, name)


@pytest.mark.skipif(not GSM8K.exists(), reason=f"GSM8K is not at {GSM8K}")
def test_gsm8k_sees_real_questions(cluster: Cluster, namespace: str) -> None:
    if not cluster.layout:
        pytest.skip("putting data into the claim needs the embedded cluster")
    shared = cluster.shared_volume(namespace, CLAIM)
    shutil.copytree(GSM8K, shared / "gsm8k")
    name = apply_job(cluster, namespace, load_example("02-gsm8k-grpo.yaml"))
    done = await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=1200)
    metrics = read_metrics(cluster, namespace, done)
    assert len(metrics) == 3
    assert all(math.isfinite(value) for line in metrics for value in line.values())
    directory = done["status"]["checkpoint"]["path"] + "/.."
    read = ["cat", f"{directory}/rollouts/step-1.jsonl"]
    rollouts = run_on_claim(cluster, namespace, read, image_of(done), mount_path(done))
    questions = [json.loads(line)["question"] for line in (GSM8K / "train.jsonl").read_text().splitlines()]
    prompts = [json.loads(line)["prompt"] for line in rollouts.splitlines()]
    assert prompts
    assert all(any(question in prompt for question in questions) for prompt in prompts)


def test_short_job_keeps_the_runtime_it_started_with(cluster: Cluster, namespace: str) -> None:
    runtime = load_example("runtimes/cpu.yaml")
    cluster.apply(runtime)
    job = load_example("03-with-a-runtime.yaml")
    lines = (ROOT / "examples/03-with-a-runtime.yaml").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("#")]) <= 12
    name = apply_job(cluster, namespace, job)
    await_job(cluster, namespace, name, lambda job: holds(job, "ClusterReady"), what="ClusterReady", timeout_s=START_S)
    cluster.kubectl("delete", "rlruntime", runtime["metadata"]["name"])
    done = await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=START_S)
    assert done["status"]["runtimeSnapshot"]["spec"] == runtime["spec"]
    assert len(read_metrics(cluster, namespace, done)) == job["spec"]["training"]["totalSteps"]
    await_nothing_but_config(cluster, namespace, name)


def test_command_reports_the_steps_that_it_prints(cluster: Cluster, namespace: str) -> None:
    program = (
        "print('Total training steps: 4')\n"
        "for step in range(1, 5): print(f'step:{step} - critic/rewards/mean:{step / 8} - actor/kl_loss:0.01')"
    )
    name = apply_job(cluster, namespace, command_job("prints", "python3", "-c", program))
    done = await_job(cluster, namespace, name, lambda job: holds(job, "Succeeded"), what="the end", timeout_s=START_S)
    progress = done["status"]["progress"]
    assert (progress["step"], progress["totalSteps"], progress["display"]) == (4, 4, "100%")
    assert (progress["metrics"]["reward"], progress["metrics"]["kl"]) == (0.5, 0.01)


def test_job_goes_on_from_its_checkpoint_when_it_was_suspended_and_when_its_head_was_lost(
    cluster: Cluster, namespace: str
) -> None:
    example = load_example("01-arithmetic-grpo.yaml")
    example["spec"]["rollout"] |= {"engine": "transformers"}
    example["spec"]["training"] |= {"totalSteps": 2000, "warmup": {"steps": 10}}
    example["spec"] |= {"checkpoint": {"saveFreq": 2}, "failurePolicy": {"maxRestarts": 1}}
    name = apply_job(cluster, namespace, example)

    first = await_job(cluster, namespace, name, lambda job: saved(job) >= 4, what="a checkpoint", timeout_s=START_S)
    suspend(cluster, namespace, name, "true")
    await_job(cluster, namespace, name, lambda job: holds(job, "Suspended"), what="Suspended", timeout_s=120)
    cluster.kubectl("-n", namespace, "wait", "--for=delete", f"raycluster/{name}", "--timeout=120s")
    kept = saved(read_job(cluster, namespace, name))
    assert kept >= saved(first)
    suspend(cluster, namespace, name, "false")
    second = await_job(
        cluster, namespace, name, lambda job: saved(job) >= kept + 4, what="more steps", timeout_s=START_S
    )

    (head,) = [pod for pod in pods_of(cluster, namespace, name) if "-head-" in pod]
    cluster.kubectl("-n", namespace, "delete", "pod", head, "--now")
    lost = await_job(
        cluster,
        namespace,
        name,
        lambda job: bool(job["status"]["attempts"]),
        what="a failed attempt",
        timeout_s=START_S,
    )
    (attempt,) = lost["status"]["attempts"]
    assert (attempt["reason"], attempt.get("nodeAtFault")) == ("HeadLost", None)
    assert attempt["step"] >= saved(second)
    third = await_job(
        cluster, namespace, name, lambda job: saved(job) >= saved(lost) + 4, what="more steps", timeout_s=START_S
    )

    assert len({job["status"]["rayCluster"]["jobId"] for job in (first, second, third)}) == 3
    steps = [line["step"] for line in read_metrics(cluster, namespace, third)]
    assert steps.count(1) == 1, "it did not start anew"
    assert set(steps) == set(range(1, max(steps) + 1)), "no step is missing"
    repeated_from = [now for before, now in pairwise(steps) if now != before + 1]
    assert len(repeated_from) <= 2
    assert all((step - 1) % 2 == 0 and step - 1 >= saved(first) for step in repeated_from), (
        "it went on from a checkpoint"
    )
    cluster.kubectl("-n", namespace, "delete", "rltrainingjob", name, "--wait")
    await_nothing(cluster, namespace, name)


def saved(job: Job) -> int:
    """The step of the latest whole checkpoint that the status tells of."""
    return int(job["status"].get("checkpoint", {}).get("latestStep", 0))


def suspend(cluster: Cluster, namespace: str, name: str, value: str) -> None:
    """Set spec.suspend."""
    patch = f'{{"spec": {{"suspend": {value}}}}}'
    cluster.kubectl("-n", namespace, "patch", "rltrainingjob", name, "--type=merge", "--patch", patch)
