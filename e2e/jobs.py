"""Reading and awaiting RLTrainingJobs, for the demo and the end-to-end tests."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from cluster import Cluster, images
from environment import ROOT, VENV
from installation import CLAIM

Job = dict[str, Any]
TERMINAL = ("Succeeded", "Failed")
START_S = 600.0
"""Timeout for a Ray cluster, its engines and the first step on a busy machine."""


def read_job(cluster: Cluster, namespace: str, name: str) -> Job:
    """The job as the API server has it, its status empty where there is none yet."""
    job: Job = json.loads(cluster.kubectl("-n", namespace, "get", "rltrainingjob", name, "-o", "json"))
    job.setdefault("status", {})
    return job


def await_job(
    cluster: Cluster, namespace: str, name: str, wanted: Callable[[Job], bool], *, what: str, timeout_s: float
) -> Job:
    """The job as soon as it is as wanted; TimeoutError with its status otherwise. It is read once a second."""
    deadline = time.monotonic() + timeout_s
    while True:
        job = read_job(cluster, namespace, name)
        if wanted(job):
            return job
        if time.monotonic() > deadline:
            raise TimeoutError(f"{namespace}/{name}: {what} not within {timeout_s:.0f} s\n{yaml.dump(job['status'])}")
        time.sleep(1)


def step_of(job: Job) -> int:
    """Completed steps."""
    return int(job["status"].get("progress", {}).get("step", 0))


def pods_of(cluster: Cluster, namespace: str, name: str) -> dict[str, tuple[str, str]]:
    """Name -> (uid, node) of the job's pods."""
    pods = json.loads(cluster.kubectl("-n", namespace, "get", "pods", "-l", f"ray.io/cluster={name}", "-o", "json"))
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in pods["items"]}


def run_rlt(cluster: Cluster, *arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `rlt` and check its exit code."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([VENV / "bin/rlt", *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == expected, (arguments, done.stdout, done.stderr)
    return done


def condition(job: Job, kind: str) -> dict[str, Any]:
    """One condition of the job, or an empty one that does not hold."""
    found = [each for each in job["status"].get("conditions", []) if each["type"] == kind]
    return found[0] if found else {"status": "Unknown", "reason": "", "message": ""}


def holds(job: Job, kind: str) -> bool:
    """Whether the condition is True."""
    return bool(condition(job, kind)["status"] == "True")


def read_metrics(cluster: Cluster, namespace: str, job: Job) -> list[dict[str, Any]]:
    """The lines of the run's metrics.jsonl, read from the claim by a pod of the job's own image."""
    metrics = job["status"]["checkpoint"]["path"] + "/../metrics.jsonl"
    text = run_on_claim(cluster, namespace, ["cat", metrics], image_of(job), mount_path(job))
    return [json.loads(line) for line in text.splitlines()]


def mount_path(job: Job) -> str:
    """Where the job's pods see its claim."""
    return str(job["spec"].get("storage", {}).get("mountPath", "/mnt/rlt"))


def image_of(job: Job) -> str:
    """The image of the job's pods: its own, or its runtime's."""
    own = job["spec"].get("cluster", {}).get("image")
    return str(own or job["status"]["runtimeSnapshot"]["spec"]["images"]["cpu"])


def run_on_claim(cluster: Cluster, namespace: str, command: list[str], image: str, mount: str) -> str:
    """What a short-lived pod that mounts the shared claim prints."""
    name = "rlt-reader"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True},
            "containers": [
                {
                    "name": "reader",
                    "image": image,
                    "command": command,
                    "volumeMounts": [{"name": "runs", "mountPath": mount}],
                }
            ],
            "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": CLAIM}}],
        },
    }
    cluster.kubectl("-n", namespace, "delete", "pod", name, "--ignore-not-found", "--now")
    cluster.kubectl("apply", "-f", "-", input=json.dumps(pod))
    try:
        finished = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("-n", namespace, "wait", finished, f"pod/{name}", "--timeout=120s")
        return cluster.kubectl("-n", namespace, "logs", name)
    finally:
        cluster.kubectl("-n", namespace, "delete", "pod", name, "--now", "--wait=false")


def load_example(name: str) -> Job:
    """A file of examples/ as a dictionary."""
    job: Job = yaml.safe_load((ROOT / "examples" / name).read_text())
    return job


def command_job(name: str, *command: str, **cluster_fields: Any) -> Job:
    """A job that runs a command on the smallest Ray cluster; `cluster_fields` replace fields of spec.cluster."""
    small = {"cpu": "900m", "memory": "2Gi"}
    return {
        "apiVersion": "rlt.dev/v1alpha1",
        "kind": "RLTrainingJob",
        "metadata": {"name": name},
        "spec": {
            "framework": {"type": "command", "command": list(command)},
            "cluster": {
                "image": images.TRAINER,
                "head": {"resources": small},
                "workers": [{"replicas": 1, "resources": small}],
                **cluster_fields,
            },
        },
    }


def apply_job(cluster: Cluster, namespace: str, job: Job) -> str:
    """Apply the job in a namespace; its name."""
    job = {**job, "metadata": {**job["metadata"], "namespace": namespace}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(job))
    return str(job["metadata"]["name"])


def things_of(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """Everything that exists for the job: RayClusters, pods, services, config maps, as kind/name."""
    kinds = "rayclusters,pods,services,configmaps"
    ours = cluster.kubectl("-n", namespace, "get", kinds, "-l", f"rlt.dev/job={name}", "-o", "name").split()
    rays = cluster.kubectl("-n", namespace, "get", kinds, "-l", f"ray.io/cluster={name}", "-o", "name").split()
    return sorted({*ours, *rays})


def await_nothing(cluster: Cluster, namespace: str, name: str, *, but: str = "nothing", timeout_s: float = 120) -> None:
    """Return once nothing is left of the job `but` a kind that stays; TimeoutError with what is left otherwise."""
    deadline = time.monotonic() + timeout_s
    while left := [each for each in things_of(cluster, namespace, name) if not each.startswith(f"{but}/")]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"of {namespace}/{name} there is still {', '.join(left)}")
        time.sleep(1)
