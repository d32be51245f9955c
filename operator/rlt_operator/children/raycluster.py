"""The RayCluster (ray.io/v1): a head that does no training work, and workers of a fixed number.

KubeRay fills in the rest: `ray start`, probes, the init container that waits for the head (pod.go, KubeRay 1.6.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlt_api.model import quantity_value
from rlt_api.spec import Accelerator, Resources, RLTrainingJobSpec, Toleration, WorkerGroup
from rlt_api.training_config import CONFIG_DIRECTORY, METRICS_PORT
from rlt_operator import names
from rlt_operator.children.ownership import metadata
from rlt_operator.observation import Job, Manifest

USER = 1000
"""User, group and file-system group of all pods."""

GRACE_S = 10
"""Seconds between SIGTERM and SIGKILL. Ray ends within them, and a deleted job is gone soon."""

SHARED_MEMORY_SHARE = 0.25
"""Share of a pod's memory that /dev/shm gets if the job does not say."""

OBJECT_STORE_SHARE = 0.6
"""Share of /dev/shm for Ray's object store; the rest is for NCCL, gloo and data loaders."""

ENVIRONMENT = {
    "HOME": "/tmp",  # the user has no home in the image
    "PYTHONUNBUFFERED": "1",
    "RAY_AUTH_MODE": "disabled",  # Ray 2.60 takes "token" if it finds one in the image; the operator reads no secrets
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_memory_monitor_refresh_ms": "0",  # the kernel's OOM killer is the judge, and the kubelet reports it
}

HEAD_PORTS = {
    "gcs-server": 6379,
    "dashboard": names.DASHBOARD_PORT,
    "client": 10001,
    "metrics": 8080,
    "rlt-metrics": METRICS_PORT,
}
"""Ports of the head. KubeRay puts them all into the head's service."""


def ray_cluster(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    """The RayCluster of the job."""
    (workers,) = spec.cluster.workers
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata(job, names.ray_cluster(job.name)),
        "spec": {
            "rayVersion": spec.cluster.ray_version,
            "enableInTreeAutoscaling": False,
            "headGroupSpec": _head(job, spec),
            "workerGroupSpecs": [_workers(job, spec, workers)],
        },
    }


def shared_memory(resources: Resources) -> int:
    """Size of /dev/shm in bytes."""
    if resources.shared_memory:
        return int(quantity_value(resources.shared_memory))
    return int(quantity_value(resources.memory) * SHARED_MEMORY_SHARE)


def _head(job: Job, spec: RLTrainingJobSpec) -> Manifest:
    head = spec.cluster.head
    container = _container(job, spec, "ray-head", head.resources) | {
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in HEAD_PORTS.items()]
    }
    pod = _pod(job, spec, container, head.resources, node_selector=head.node_selector)
    scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT), "prometheus.io/path": "/metrics"}
    return {
        "rayStartParams": {
            "dashboard-host": "0.0.0.0",
            "num-cpus": "0",  # no task or actor lands on the head, only the driver of the Ray job
            "num-gpus": "0",
            "no-monitor": "true",  # Ray's autoscaler would remove workers that it thinks idle
            "object-store-memory": _object_store(head.resources),
        },
        "template": {"metadata": {"labels": names.labels(job.name), "annotations": scrape}, "spec": pod},
    }


def _workers(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    container = _container(job, spec, "ray-worker", group.resources, group.accelerator)
    pod = _pod(job, spec, container, group.resources, node_selector=group.node_selector) | {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {names.JOB_LABEL: job.name, "ray.io/node-type": "worker"}},
            }
        ]
    }
    if group.tolerations:
        pod["tolerations"] = [_toleration(toleration) for toleration in group.tolerations]
    start = {
        "num-cpus": str(max(1, int(quantity_value(group.resources.cpu)))),
        "object-store-memory": _object_store(group.resources),
    }
    if group.accelerator is None:
        start["num-gpus"] = "0"  # else Ray counts devices that the image's runtime shows by mistake
    return {
        "groupName": group.name,
        "replicas": group.replicas,
        "minReplicas": group.replicas,
        "maxReplicas": group.replicas,
        "rayStartParams": start,
        "template": {"metadata": {"labels": names.labels(job.name)}, "spec": pod},
    }


def _toleration(toleration: Toleration) -> Manifest:
    manifest = toleration.to_json()
    return manifest if toleration.key else manifest | {"operator": "Exists"}


def _container(
    job: Job, spec: RLTrainingJobSpec, name: str, resources: Resources, accelerator: Accelerator | None = None
) -> dict[str, Any]:
    amounts = {"cpu": resources.cpu, "memory": resources.memory}
    if accelerator:
        amounts[accelerator.resource_name] = str(accelerator.count)
    mounts: list[Manifest] = [
        {"name": "shared-memory", "mountPath": "/dev/shm"},
        {"name": "storage", "mountPath": names.mount_path(spec)},
    ]
    if spec.framework.type == "builtin":
        mounts.append({"name": "training-config", "mountPath": CONFIG_DIRECTORY, "readOnly": True})
    return {
        "name": name,
        "image": spec.cluster.image,
        "imagePullPolicy": spec.cluster.image_pull_policy,
        "env": [{"name": key, "value": value} for key, value in sorted(ENVIRONMENT.items())],
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the last words of a crash reach the job's status
        "volumeMounts": mounts,
    }


def _pod(
    job: Job,
    spec: RLTrainingJobSpec,
    container: Mapping[str, Any],
    resources: Resources,
    *,
    node_selector: Mapping[str, str],
) -> dict[str, Any]:
    size = str(shared_memory(resources))
    storage = {"persistentVolumeClaim": {"claimName": spec.storage.claim_name}} if spec.storage else {"emptyDir": {}}
    volumes: list[dict[str, Any]] = [
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": "storage", **storage},
    ]
    if spec.framework.type == "builtin":
        volumes.append({"name": "training-config", "configMap": {"name": names.config_map(job.name)}})
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [dict(container)],
        "volumes": volumes,
    }
    if node_selector:
        pod["nodeSelector"] = dict(node_selector)
    return pod


def _object_store(resources: Resources) -> str:
    return str(int(shared_memory(resources) * OBJECT_STORE_SHARE))
