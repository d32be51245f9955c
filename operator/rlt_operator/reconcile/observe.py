"""All reads: the job and everything that belongs to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from rlt_api.conditions import ConditionType
from rlt_api.runtime_policy import ANY_RUNTIME, RuntimePolicy, add_default_runtime
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
from rlt_operator.lifecycle.restarts import needs_faulty_node
from rlt_operator.lifecycle.verdict import owned_cluster
from rlt_operator.namespaces import get_runtime_policy
from rlt_operator.observation import (
    Observed,
    Pod,
    RayCluster,
    WarningEvent,
    get_preflight_id,
    get_submission_id,
    is_preflight_submitted,
    is_submitted,
    list_cluster_pods,
    parse_config,
    parse_pod,
    parse_ray_cluster,
    parse_warning,
    parse_workloads,
)
from rlt_operator.reconcile import ray_jobs

MAX_PODS_WITH_EVENTS = 3
"""Maximum number of unready pods to fetch events for. The pods of a group usually fail for the same cause."""


async def observe(
    api: KubernetesApi, send: Send, *, namespace: str, name: str, runtimes: RuntimePolicy = ANY_RUNTIME
) -> Observed | None:
    """The job and what belongs to it; None if the job does not exist. Raises ApiError.

    `runtimes` is the policy of the cluster, which labels of the namespace override.
    """
    manifest = await api.get(api_paths.job(namespace, name))
    if manifest is None:
        return None
    policy = await _get_policy(api, manifest, runtimes)
    job = parse_job(manifest, await _get_runtime(api, manifest, policy), policy)
    if job.deleting or job.managed_by != OPERATOR:
        return Observed(job)
    (installed, cluster), pods = await asyncio.gather(_get_ray_cluster(api, job), _list_pods(api, job))
    kuberay = await _get_kuberay(api) if installed and cluster is None else None
    observed = Observed(job, kuberay_installed=installed, kuberay=kuberay, cluster=cluster, pods=pods)
    if _needs_nodes(observed):
        observed = replace(observed, nodes=await _list_nodes(api))
    cluster = owned_cluster(observed)
    if cluster is None or cluster.deleting or job.spec is None:
        return observed
    warnings, config, queue_message = await asyncio.gather(
        _list_warnings(api, observed, cluster), _get_config(api, job), _get_queue_message(api, job, cluster)
    )
    observed = replace(observed, warnings=warnings, config=config, queue_message=queue_message)
    head_ready = any(pod.is_head and pod.ready for pod in list_cluster_pods(observed))
    id = get_submission_id(observed)
    if id and (head_ready or is_submitted(observed) or is_preflight_submitted(observed)):
        preflight_id = get_preflight_id(observed) if job.spec.preflight.enabled else None
        observed = replace(observed, ray=await ray_jobs.observe_ray(send, job, id, preflight_id=preflight_id))
        if needs_faulty_node(observed) and not observed.nodes:
            observed = replace(observed, nodes=await _list_nodes(api))
    return observed


async def _get_policy(api: KubernetesApi, manifest: Manifest, runtimes: RuntimePolicy) -> RuntimePolicy:
    """The policy for the job's RLRuntime. It applies until the job is accepted."""
    if is_true(parse_status(manifest), ConditionType.ACCEPTED):
        return ANY_RUNTIME
    return await get_runtime_policy(api, manifest["metadata"]["namespace"], runtimes)


async def _get_runtime(api: KubernetesApi, manifest: Manifest, policy: RuntimePolicy) -> RuntimeSnapshot | None:
    """The current RLRuntime, for a job that has one and no snapshot of it in its status."""
    reference = add_default_runtime(manifest.get("spec", {}), policy).get("runtimeRef")
    if reference is None or parse_status(manifest).runtime_snapshot:
        return None
    try:
        runtime = await api.get(api_paths.runtime(reference["name"]))
    except UnknownResourceError:
        return None
    return parse_runtime(runtime) if runtime else None


async def _get_ray_cluster(api: KubernetesApi, job: Job) -> tuple[bool, RayCluster | None]:
    try:
        manifest = await api.get(api_paths.ray_cluster(job.namespace, names.ray_cluster(job.name)))
    except UnknownResourceError:
        return False, None
    return True, parse_ray_cluster(manifest) if manifest else None


async def _get_kuberay(api: KubernetesApi) -> KubeRay | None:
    crd = await api.get_large(api_paths.RAY_CLUSTER_CRD)
    return parse_kuberay(crd) if crd else None


async def _get_queue_message(api: KubernetesApi, job: Job, cluster: RayCluster) -> str | None:
    if job.queue is None or not cluster.suspend:
        return None
    try:
        kueue = await api.get(api_paths.KUEUE)
    except UnknownResourceError:
        return None
    assert kueue
    path = api_paths.workloads(job.namespace, kueue["preferredVersion"]["version"])
    return parse_workloads(await api.list(path, labelSelector=f"{names.WORKLOAD_LABEL}={cluster.uid}"))


def _needs_nodes(observed: Observed) -> bool:
    """Whether to read the nodes before Ray is called."""
    job, spec = observed.job, observed.job.spec
    to_decide = observed.cluster is None and spec is not None and not spec.suspend and needs_decision(job)
    return to_decide or needs_faulty_node(observed)


async def _list_nodes(api: KubernetesApi) -> tuple[Node, ...]:
    """All nodes, from the API server's cache (resourceVersion 0): there may be thousands."""
    return parse_nodes(await api.list(api_paths.NODES, resourceVersion="0"))


async def _list_pods(api: KubernetesApi, job: Job) -> tuple[Pod, ...]:
    selector = f"{names.JOB_LABEL}={job.name}"
    return tuple(map(parse_pod, await api.list(api_paths.pods(job.namespace), labelSelector=selector)))


async def _list_warnings(api: KubernetesApi, observed: Observed, cluster: RayCluster) -> tuple[WarningEvent, ...]:
    pods = list_cluster_pods(observed)
    if pods and all(pod.ready for pod in pods):
        return ()
    unready = [pod.uid for pod in pods if not pod.ready and pod.unschedulable is None]
    path = api_paths.events(observed.job.namespace)
    found = await asyncio.gather(
        *(
            api.list(path, fieldSelector=f"involvedObject.uid={uid},type=Warning")
            for uid in [cluster.uid, *unready[:MAX_PODS_WITH_EVENTS]]
        )
    )
    return tuple(parse_warning(event) for events in found for event in events)


async def _get_config(api: KubernetesApi, job: Job) -> Mapping[str, str] | None:
    if is_true(job.status, ConditionType.RUNNING):  # the Ray job has read its config
        return None
    manifest = await api.get(api_paths.config_map(job.namespace, names.config_map(job.name)))
    return parse_config(manifest) if manifest else None
