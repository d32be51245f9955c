"""`make demo`: a cluster, the operator on it, and examples/01-arithmetic-grpo.yaml to its end with its curve."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from cluster import Cluster
from cluster.programs import obtain_built
from cluster.stages import Stage, StageError, exit_plainly, finished, stage
from curve import terminal_curve, write_png
from environment import ROOT
from installation import CLAIM, install_operator, make_namespace
from jobs import TERMINAL, Job, await_job, condition, holds, mount_path, read_metrics

NAMESPACE = "rlt-demo"
NAME = "arithmetic-grpo"
EXAMPLE = ROOT / "examples/01-arithmetic-grpo.yaml"
OUT = ROOT / "out/demo"


def main() -> None:
    """Run the demo; ValueError with advice where it fails."""
    cluster = Cluster.connect() if "KUBECONFIG" in os.environ else Cluster.up(nodes=2)
    install_operator(cluster)
    with stage("apply examples/01-arithmetic-grpo.yaml", estimate_s=5):
        shared = make_namespace(cluster, NAMESPACE)
        cluster.kubectl("-n", NAMESPACE, "delete", "rltrainingjob", NAME, "--ignore-not-found", "--wait")
        cluster.kubectl("-n", NAMESPACE, "apply", "-f", str(EXAMPLE))
    with stage("the Ray cluster comes up", estimate_s=60) as this:
        follow(cluster, this, "Running", lambda job: holds(job, "Running"))
    with stage("the engines start and the model warms up", estimate_s=90) as this:
        follow(cluster, this, "training", lambda job: stage_of(job) not in ("", "preparing", "warmup"))
    with stage("GRPO", estimate_s=270) as this:
        job = follow(cluster, this, "the end", lambda job: job["status"]["phase"] in TERMINAL)
    with stage("read the run's metrics, let the Ray cluster go", estimate_s=15):
        job = await_job(cluster, NAMESPACE, NAME, lambda job: not holds(job, "Reconciling"), what="rest", timeout_s=180)
        rewards = [line["critic/rewards/mean"] for line in read_metrics(cluster, NAMESPACE, job)]
    report(cluster, job, rewards, shared)


def follow(cluster: Cluster, this: Stage, what: str, wanted: Callable[[Job], bool]) -> Job:
    """Await a state of the job while its status is shown; a failed job ends the demo."""

    def look(job: Job) -> bool:
        this.note(summary(job))
        return job["status"].get("phase") in TERMINAL or wanted(job)

    try:
        job = await_job(cluster, NAMESPACE, NAME, look, what=what, timeout_s=1200)
    except TimeoutError as error:
        raise StageError(str(error), advice=f"kubectl -n {NAMESPACE} describe rltrainingjob {NAME}") from None
    if job["status"]["phase"] == "Failed":
        raise failure(job)
    return job


def stage_of(job: Job) -> str:
    """What the trainer says that it is doing, or nothing yet."""
    return str(job["status"].get("progress", {}).get("stage", ""))


def summary(job: Job) -> str:
    """The status in a few words."""
    status = job["status"]
    progress = status.get("progress")
    if not progress or progress["stage"] in ("preparing", "warmup"):
        return f"{status.get('phase', 'Pending')}: {progress['stage'] if progress else status.get('message', '')}"
    reward = progress["metrics"].get("reward")
    return (
        f"step {progress['step']} of {progress['totalSteps']}"
        + (f", reward {reward}" if reward is not None else "")
        + (f", {progress['eta']} left" if "eta" in progress else "")
    )


def failure(job: Job) -> StageError:
    """The job's own words."""
    return StageError(
        f"the job failed: {condition(job, 'Failed')['message']}",
        advice=f"kubectl -n {NAMESPACE} describe rltrainingjob {NAME}",
    )


def report(cluster: Cluster, job: Job, rewards: list[float], shared: Path | None) -> None:
    """Print how it went and write out/demo/."""
    first, last = mean(rewards[:5]), mean(rewards[-5:])
    picture = OUT / "reward.png"
    write_png(rewards, picture, title="examples/01-arithmetic-grpo.yaml: GRPO on two-digit addition")
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
    print("\n" + terminal_curve(rewards))
    print(f"reward      {first:.3f} over the first 5 steps, {last:.3f} over the last 5 ({last / first:.1f} times)")
    print(f"picture     {picture.relative_to(ROOT)}")
    print(f"numbers     {(OUT / 'result.json').relative_to(ROOT)}")
    print(f"checkpoint  {checkpoint_of(job, shared)}")
    path = f" PATH={obtain_built()}:$PATH" if cluster.layout else ""
    print(f"next        export KUBECONFIG={cluster.kubeconfig}{path}")
    print(f"            kubectl -n {NAMESPACE} describe rltj {NAME}")


def checkpoint_of(job: Job, shared: Path | None) -> str:
    """Where the exported model lies: in the pods, and on this machine where the volume is a folder of it."""
    exported: str = job["status"]["checkpoint"]["exportedPath"]
    if not shared:
        return f"{exported} in the volume of claim {CLAIM}"
    return f"{shared}{exported.removeprefix(mount_path(job))}"


if __name__ == "__main__":
    with exit_plainly():
        main()
