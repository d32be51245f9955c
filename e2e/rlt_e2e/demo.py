"""`make demo`: start a cluster, install the operator, run examples/01-arithmetic-grpo.yaml and plot its reward."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from rlt.job_state import get_reward
from rlt.metric_text import WINDOW
from rlt_e2e.cluster import Cluster
from rlt_e2e.cluster.programs import obtain_built
from rlt_e2e.cluster.stages import Stage, StageError, exit_with_message, finished, stage
from rlt_e2e.curve import render_curve, write_png
from rlt_e2e.environment import ROOT
from rlt_e2e.installation import CLAIM, create_namespace, install_operator
from rlt_e2e.jobs import TERMINAL, Job, await_job, get_condition, get_mount_path, is_true, read_metrics

NAMESPACE = "rlt-demo"
NAME = "arithmetic-grpo"
EXAMPLE = ROOT / "examples/01-arithmetic-grpo.yaml"
OUT = ROOT / "out/demo"


def main() -> None:
    """Run the demo. Raises ValueError with advice."""
    cluster = Cluster.connect() if "KUBECONFIG" in os.environ else Cluster.up(nodes=2)
    install_operator(cluster)
    with stage("apply examples/01-arithmetic-grpo.yaml", estimate_s=5):
        shared = create_namespace(cluster, NAMESPACE)
        cluster.kubectl("-n", NAMESPACE, "delete", "rltrainingjob", NAME, "--ignore-not-found", "--wait")
        cluster.kubectl("-n", NAMESPACE, "apply", "-f", str(EXAMPLE))
    with stage("start the Ray cluster", estimate_s=60) as this:
        follow(cluster, this, "Running", lambda job: is_true(job, "Running"))
    with stage("start the engines and warm up the model", estimate_s=90) as this:
        follow(cluster, this, "training", lambda job: get_stage(job) not in ("", "preparing", "warmup"))
    with stage("train with GRPO", estimate_s=270) as this:
        job = follow(cluster, this, "the end", lambda job: job["status"]["phase"] in TERMINAL)
    with stage("release the Ray cluster and read the metrics", estimate_s=15):
        job = await_job(
            cluster, NAMESPACE, NAME, lambda job: not is_true(job, "Reconciling"), what="settled", timeout_s=180
        )
        rewards = [line["critic/rewards/mean"] for line in read_metrics(cluster, NAMESPACE, job)]
    report(cluster, job, rewards, shared)


def follow(cluster: Cluster, this: Stage, what: str, wanted: Callable[[Job], bool]) -> Job:
    """Wait for a state of the job and show its status meanwhile. Raises StageError if the job fails."""

    def is_reached(job: Job) -> bool:
        this.note(summarize(job))
        return job["status"].get("phase") in TERMINAL or wanted(job)

    try:
        job = await_job(cluster, NAMESPACE, NAME, is_reached, what=what, timeout_s=1200)
    except TimeoutError as error:
        raise StageError(str(error), advice=f"kubectl -n {NAMESPACE} describe rltrainingjob {NAME}") from None
    if job["status"]["phase"] == "Failed":
        raise build_failure(job)
    return job


def get_stage(job: Job) -> str:
    """Return the stage that the trainer reports, empty before the first report."""
    return str(job["status"].get("progress", {}).get("stage", ""))


def summarize(job: Job) -> str:
    """Return the status as a short text."""
    status = job["status"]
    progress = status.get("progress")
    if not progress or progress["stage"] in ("preparing", "warmup"):
        return f"{status.get('phase', 'Pending')}: {progress['stage'] if progress else status.get('message', '')}"
    reward = get_reward(progress)
    return (
        f"step {progress['step']} of {progress['totalSteps']}"
        + (f", reward {reward}" if reward is not None else "")
        + (f", {progress['eta']} left" if "eta" in progress else "")
    )


def build_failure(job: Job) -> StageError:
    """Return an error with the message of the condition Failed."""
    return StageError(
        f"the job failed: {get_condition(job, 'Failed')['message']}",
        advice=f"kubectl -n {NAMESPACE} describe rltrainingjob {NAME}",
    )


def report(cluster: Cluster, job: Job, rewards: list[float], shared: Path | None) -> None:
    """Print the results and write them to out/demo/."""
    first = mean(rewards[:WINDOW])
    last = mean(rewards[-WINDOW:])
    plot = OUT / "reward.png"
    write_png(rewards, plot, title="examples/01-arithmetic-grpo.yaml: GRPO on two-digit addition")
    result = {
        "phase": job["status"]["phase"],
        "steps": job["status"]["progress"]["step"],
        "firstReward": round(first, 4),
        "lastReward": round(last, 4),
        "stages": dict(finished),
        "job": NAME,
        "namespace": NAMESPACE,
    }
    (OUT / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print("\n$ kubectl get rltrainingjobs")
    print(cluster.kubectl("-n", NAMESPACE, "get", "rltrainingjobs"))
    print(f"{'CONDITION':15} {'STATUS':7} {'REASON':20} MESSAGE")
    for each in job["status"]["conditions"]:
        print(f"{each['type']:15} {each['status']:7} {each['reason']:20} {each['message']}".rstrip())
    print("\n" + render_curve(rewards))
    print(
        f"reward      {first:.3f} over the first {WINDOW} steps, "
        f"{last:.3f} over the last {WINDOW} ({last / first:.1f} times)"
    )
    print(f"plot        {plot.relative_to(ROOT)}")
    print(f"results     {(OUT / 'result.json').relative_to(ROOT)}")
    print(f"checkpoint  {find_checkpoint(job, shared)}")
    path = f" PATH={obtain_built()}:$PATH" if cluster.layout else ""
    print(f"next        export KUBECONFIG={cluster.kubeconfig}{path}")
    print(f"            kubectl -n {NAMESPACE} describe rltj {NAME}")


def find_checkpoint(job: Job, shared: Path | None) -> str:
    """Return the path of the exported model: on this machine if the volume is a folder of it, else in the pods."""
    exported: str = job["status"]["checkpoint"]["exportedPath"]
    if not shared:
        return f"{exported} in the volume of PVC {CLAIM}"
    return f"{shared}{exported.removeprefix(get_mount_path(job))}"


if __name__ == "__main__":
    with exit_with_message():
        main()
