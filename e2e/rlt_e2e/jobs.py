"""Build, apply, read and await RLTrainingJobs, for the demo and the end-to-end tests."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rlt_api.validation.resolved_spec import get_resolved_spec
from rlt_e2e.api_objects import read_object, read_objects
from rlt_e2e.cluster import Cluster, images
from rlt_e2e.environment import ROOT
from rlt_e2e.forked_programs import run_rlt_forked
from rlt_e2e.installation import CLAIM

Job = dict[str, Any]
TERMINAL = ("Succeeded", "Failed")
START_TIMEOUT_S = 600.0
"""Timeout for a Ray cluster, its engines and the first step on a busy machine."""
EVENT_TIMEOUT_S = 300.0
"""Timeout for a change that starts no program of the job, on a busy machine."""


def read_job(cluster: Cluster, namespace: str, name: str) -> Job:
    """Read the job from the API server. The status is empty if it is missing. Raises ValueError without the job."""
    job = read_object(cluster, namespace, "rltrainingjob", name)
    if job is None:
        raise ValueError(f"RLTrainingJob {namespace}/{name} does not exist")
    job.setdefault("status", {})
    return job


def await_job(
    cluster: Cluster, namespace: str, name: str, wanted: Callable[[Job], bool], *, what: str, timeout_s: float
) -> Job:
    """Read the job once per second and return it when `wanted` is true. Raises TimeoutError with its status."""
    deadline = time.monotonic() + timeout_s
    while True:
        job = read_job(cluster, namespace, name)
        if wanted(job):
            return job
        if time.monotonic() > deadline:
            status = yaml.dump(job["status"])
            raise TimeoutError(f"{namespace}/{name}: timeout after {timeout_s:.0f} s waiting for {what}\n{status}")
        time.sleep(1)


def await_condition(cluster: Cluster, namespace: str, name: str, kind: str, *, timeout_s: float) -> Job:
    """Return the job once its condition `kind` is True. Raises TimeoutError with its status."""
    return await_job(cluster, namespace, name, lambda job: is_true(job, kind), what=kind, timeout_s=timeout_s)


def get_step(job: Job) -> int:
    """Return the number of completed steps."""
    return int(job["status"].get("progress", {}).get("step", 0))


def list_pods(cluster: Cluster, namespace: str, name: str) -> dict[str, tuple[str, str]]:
    """Return name -> (uid, node) of the job's pods."""
    pods = read_objects(cluster, namespace, "pod", labelSelector=f"ray.io/cluster={name}")
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"]) for pod in pods}


def run_rlt(cluster: Cluster, *arguments: str | Path, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `rlt` and check its exit code."""
    done = run_rlt_forked(arguments, cluster.environment)
    assert done.returncode == expected, (arguments, done.stdout, done.stderr)
    return done


def get_condition(job: Job, kind: str) -> dict[str, Any]:
    """Return a condition of the job, or an empty one of status Unknown."""
    found = [each for each in job["status"].get("conditions", []) if each["type"] == kind]
    return found[0] if found else {"status": "Unknown", "reason": "", "message": ""}


def is_true(job: Job, kind: str) -> bool:
    """Whether the condition is True."""
    return bool(get_condition(job, kind)["status"] == "True")


def read_metrics(cluster: Cluster, namespace: str, job: Job) -> list[dict[str, Any]]:
    """Read the lines of the run's metrics.jsonl, with a pod of the job's image that mounts the volume."""
    metrics = job["status"]["checkpoint"]["path"] + "/../metrics.jsonl"
    text = run_on_volume(cluster, namespace, ["cat", metrics], get_image(job), get_mount_path(job))
    return [json.loads(line) for line in text.splitlines()]


def get_mount_path(job: Job) -> str:
    """Return the mount path of the volume in the pods of the job."""
    return str(job["spec"].get("storage", {}).get("mountPath", "/mnt/rlt"))


def get_image(job: Job) -> str:
    """Return the image of the job's pods: the spec's, else its runtime's."""
    image = job["spec"].get("cluster", {}).get("image")
    return str(image or get_resolved_spec(job)["cluster"]["image"])


def run_on_volume(cluster: Cluster, namespace: str, command: list[str], image: str, mount: str) -> str:
    """Run a command in a pod that mounts the shared PVC, and return its output."""
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
        cluster.kubectl("-n", namespace, "wait", finished, f"pod/{name}", "--timeout=300s")
        return cluster.kubectl("-n", namespace, "logs", name)
    finally:
        cluster.kubectl("-n", namespace, "delete", "pod", name, "--now", "--wait=false")


def load_example(name: str) -> Job:
    """Load a file of examples/."""
    job: Job = yaml.safe_load((ROOT / "examples" / name).read_text())
    return job


def build_learning_job(name: str, *, steps: int, save_freq: int, workers: int = 2) -> Job:
    """Build example 01 with cheaper steps: the transformers engine and half of the batch.

    Steps are deterministic, also after a resumption: the same job always ends with the same weights.
    """
    job = load_example("01-arithmetic-grpo.yaml")
    spec = job["spec"]
    job["metadata"]["name"] = name
    spec["training"] |= {"totalSteps": steps, "trainBatchSize": 16, "ppoMiniBatchSize": 8}
    spec["training"]["warmup"] |= {"steps": 20}
    spec["rollout"]["engine"] = "transformers"
    spec["cluster"]["workers"][0]["replicas"] = workers
    spec["checkpoint"] = {"saveFreq": save_freq}
    return job


def build_command_job(name: str, *command: str, **cluster_fields: Any) -> Job:
    """Build a job that runs a command on a small Ray cluster. `cluster_fields` replace fields of spec.cluster."""
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


def await_objects(cluster: Cluster, namespace: str, condition: str, *objects: str) -> None:
    """Wait until the condition of `kubectl wait` holds. Raises ValueError after EVENT_TIMEOUT_S."""
    cluster.kubectl("-n", namespace, "wait", f"--for={condition}", f"--timeout={EVENT_TIMEOUT_S:.0f}s", *objects)


def apply_job(cluster: Cluster, namespace: str, job: Job) -> str:
    """Apply the job in a namespace and return its name."""
    job = {**job, "metadata": {**job["metadata"], "namespace": namespace}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(job))
    return str(job["metadata"]["name"])


def list_objects(cluster: Cluster, namespace: str, name: str) -> list[str]:
    """List the RayClusters, pods, services and config maps of the job as kind/name."""
    return sorted(
        {
            f"{kind}/{found['metadata']['name']}"
            for kind in ("raycluster", "pod", "service", "configmap")
            for label in ("rlt.dev/job", "ray.io/cluster")
            for found in read_objects(cluster, namespace, kind, labelSelector=f"{label}={name}")
        }
    )


def await_cleanup(
    cluster: Cluster, namespace: str, name: str, *, keep: str = "", timeout_s: float = EVENT_TIMEOUT_S
) -> None:
    """Wait until the objects of the job are deleted, except of kind `keep`. Raises TimeoutError with their names."""
    deadline = time.monotonic() + timeout_s
    while left := [each for each in list_objects(cluster, namespace, name) if not each.startswith(f"{keep}/")]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{namespace}/{name}: not deleted after {timeout_s:.0f} s: {', '.join(left)}")
        time.sleep(1)
