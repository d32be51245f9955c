"""The objects that the bench creates: jobs, their peers, and RayClusters of the same shape."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import aiohttp

from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_core.names import JOB_LABEL

SPEC: dict[str, Any] = {
    "model": {"fromSeed": {}},
    "data": {"preset": "arithmetic"},
    "training": {"totalSteps": 10_000, "trainBatchSize": 32},
    "cluster": {
        "image": "localhost/rlt-trainer:cpu",
        "workers": [{"replicas": 1, "resources": {"cpu": "1", "memory": "4Gi"}}],
    },
}
"""A builtin job of two pods: head and worker."""

DELETION = aiohttp.ClientTimeout(total=300)
CLEARED = (
    "/apis/rlt.dev/v1alpha1/namespaces/{}/rltrainingjobs",
    "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "/apis/ray.io/v1/namespaces/{}/rayclusters",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/secrets",
    "/api/v1/namespaces/{}/events",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
)


def make_job(namespace: str, name: str, spec: dict[str, Any] = SPEC) -> Manifest:
    """An RLTrainingJob."""
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "rlt.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": metadata, "spec": spec}


def make_ray_job(namespace: str, name: str, cluster: Manifest) -> Manifest:
    """A RayJob with the cluster of a job."""
    spec = {
        "entrypoint": "python -c 'print(1)'",
        "submissionMode": "HTTPMode",
        "rayClusterSpec": cluster["spec"],
    }
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}


def make_train_job(namespace: str, name: str) -> Manifest:
    """A TrainJob of Kubeflow Trainer with two nodes."""
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 2, "image": "localhost/rlt-trainer:cpu"},
    }
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}


async def create_namespace(api: KubernetesApi, name: str) -> None:
    """Create a namespace."""
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def create_all(api: KubernetesApi, path: str, manifests: Sequence[Manifest]) -> None:
    """Create the objects, as many at the same time as the client allows."""
    await asyncio.gather(*(api.create(path, manifest) for manifest in manifests))


def build_bare_cluster(cluster: Manifest, namespace: str, name: str) -> Manifest:
    """A RayCluster with the spec of a job's. Its pods have no label of a job, so that the operator ignores them."""
    spec = copy.deepcopy(cluster["spec"])
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        group["template"]["metadata"]["labels"].pop(JOB_LABEL)
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


async def clear(api: KubernetesApi, namespace: str) -> None:
    """Delete what a measurement has left, without a delay for termination."""
    for path in CLEARED:
        query = {"gracePeriodSeconds": "0"}
        await api.send("DELETE", path.format(namespace), query=query, timeout=DELETION)
    services = await api.list(f"/api/v1/namespaces/{namespace}/services")
    names = [each["metadata"]["name"] for each in services]
    await asyncio.gather(*(api.send("DELETE", api_paths.service(namespace, name)) for name in names))
