"""All the reading: one look at a job and everything that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from rlt_api.conditions import ConditionType
from rlt_api.spec import OPERATOR
from rlt_api.status import RuntimeSnapshot
from rlt_core import names
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.job import Job, Manifest, parse_job, parse_runtime, parse_status
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi, UnknownResourceError
from rlt_core.network_status import needs_decision
from rlt_core.ray_http import Send
from rlt_operator.conditions import is_true
from rlt_operator.kuberay import KubeRay, parse_kuberay
from rlt_operator.lifecycle.attempts import in_question
from rlt_operator.observation import (
    Observed,
    Pod,
    RayCluster,
    WarningEvent,
    cluster_pods,
    parse_config,
    parse_pod,
    parse_ray_cluster,
    parse_warning,
    parse_workloads,
    preflight_id,
    preflighted,
    submission_id,
    submitted,
)
from rlt_operator.reconcile import ray_jobs

PODS_EXPLAINED = 3
"""Of so many pods that are not ready the events are read: pods of a group fail alike."""


async def observe(api: KubernetesApi, send: Send, *, namespace: str, name: str) -> Observed | None:
    """The job and what belongs to it; None if there is no such job. Raises ApiError."""
    manifest = await api.get(api_paths.job(namespace, name))
    if manifest is None:
        return None
    job = parse_job(manifest, await _runtime(api, manifest))
    if job.deleting or job.managed_by != OPERATOR:
        return Observed(job)
    (installed, cluster), pods = await asyncio.gather(_ray_cluster(api, job), _pods(api, job))
    kuberay = await _kuberay(api) if installed and cluster is None else None
    observed = Observed(job, kuberay_installed=installed, kuberay=kuberay, cluster=cluster, pods=pods)
    if _looks_for_nodes(observed):
        observed = replace(observed, nodes=await _nodes(api))
    if cluster is None or cluster.owner_uid != job.uid or cluster.deleting or job.spec is None:
        return observed
    warnings, config, says = await asyncio.gather(
        _warnings(api, observed), _config(api, job), _queue_says(api, job, cluster)
    )
    observed = replace(observed, warnings=warnings, config=config, queue_says=says)
    head_ready = any(pod.is_head and pod.ready for pod in cluster_pods(observed))
    id = submission_id(observed)
    if id and (head_ready or submitted(observed) or preflighted(observed)):
        checks = preflight_id(observed) if job.spec.preflight.enabled else None
        observed = replace(observed, ray=await ray_jobs.observe(send, job, id, preflight_id=checks))
        if in_question(observed) and not observed.nodes:
            observed = replace(observed, nodes=await _nodes(api))
    return observed


async def _runtime(api: KubernetesApi, manifest: Manifest) -> RuntimeSnapshot | None:
    """The runtime as it is now, for a job that names one and keeps no snapshot of it yet."""
    reference = manifest.get("spec", {}).get("runtimeRef")
    if reference is None or parse_status(manifest).runtime_snapshot:
        return None
    try:
        runtime = await api.get(api_paths.runtime(reference["name"]))
    except UnknownResourceError:
        return None
    return parse_runtime(runtime) if runtime else None


async def _ray_cluster(api: KubernetesApi, job: Job) -> tuple[bool, RayCluster | None]:
    try:
        manifest = await api.get(api_paths.ray_cluster(job.namespace, names.ray_cluster(job.name)))
    except UnknownResourceError:
        return False, None
    return True, parse_ray_cluster(manifest) if manifest else None


async def _kuberay(api: KubernetesApi) -> KubeRay | None:
    crd = await api.get_large(api_paths.RAY_CLUSTER_CRD)
    return parse_kuberay(crd) if crd else None


async def _queue_says(api: KubernetesApi, job: Job, cluster: RayCluster) -> str | None:
    if job.queue is None or not cluster.suspend:
        return None
    try:
        kueue = await api.get(api_paths.KUEUE)
    except UnknownResourceError:
        return None
    assert kueue
    path = api_paths.workloads(job.namespace, kueue["preferredVersion"]["version"])
    return parse_workloads(await api.list(path, labelSelector=f"{names.WORKLOAD_LABEL}={cluster.uid}"))


def _looks_for_nodes(observed: Observed) -> bool:
    """Whether the nodes are to be looked at, before anything is known of Ray."""
    job, spec = observed.job, observed.job.spec
    to_decide = observed.cluster is None and spec is not None and not spec.suspend and needs_decision(job)
    return to_decide or in_question(observed)


async def _nodes(api: KubernetesApi) -> tuple[Node, ...]:
    """The nodes. There may be thousands, and the API server's cache is good enough."""
    return parse_nodes(await api.list(api_paths.NODES, resourceVersion="0"))


async def _pods(api: KubernetesApi, job: Job) -> tuple[Pod, ...]:
    selector = f"{names.JOB_LABEL}={job.name}"
    return tuple(map(parse_pod, await api.list(api_paths.pods(job.namespace), labelSelector=selector)))


async def _warnings(api: KubernetesApi, observed: Observed) -> tuple[WarningEvent, ...]:
    pods = cluster_pods(observed)
    if pods and all(pod.ready for pod in pods):
        return ()
    assert observed.cluster
    unready = [pod.uid for pod in pods if not pod.ready and pod.unschedulable is None]
    path = api_paths.events(observed.job.namespace)
    found = await asyncio.gather(
        *(
            api.list(path, fieldSelector=f"involvedObject.uid={uid},type=Warning")
            for uid in [observed.cluster.uid, *unready[:PODS_EXPLAINED]]
        )
    )
    return tuple(parse_warning(event) for events in found for event in events)


async def _config(api: KubernetesApi, job: Job) -> Mapping[str, str] | None:
    if is_true(job.status, ConditionType.RUNNING):  # the Ray job has read it
        return None
    manifest = await api.get(api_paths.config_map(job.namespace, names.config_map(job.name)))
    return parse_config(manifest) if manifest else None
