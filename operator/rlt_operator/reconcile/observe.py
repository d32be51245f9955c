"""What is known of a job: from the cache of watched objects and from the poller of Ray heads.

Few reads go to the API server: objects that a job needs once, and the objects of one job before a decision that cannot
be undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rlt_api.spec.job_spec import OPERATOR
from rlt_api.spec.runtime_policy import ANY_RUNTIME, RuntimePolicy, add_default_runtime
from rlt_api.status.conditions import ConditionType
from rlt_api.status.job_status import RuntimeSnapshot
from rlt_core import names
from rlt_core.children.network_policy import NetworkAccess
from rlt_core.children.preflight_file import has_preflight
from rlt_core.children.programs import name_programs
from rlt_core.children.sandboxes import AGENT_SANDBOX, get_sandbox
from rlt_core.earlier_job import Missing, find_checkpoint, resume_from, waits_for_earlier_job
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job, Manifest, get_attempt_number, parse_job, parse_runtime
from rlt_core.kuberay import KubeRay, parse_kuberay
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi, UnknownResourceError
from rlt_core.network_status import needs_decision
from rlt_core.ray_http import Head, RayTokens
from rlt_core.shards import ALL, Shard
from rlt_operator.cache.cache import Cache
from rlt_operator.diagnosis.sandboxes import track_pool
from rlt_operator.lifecycle.restarts import needs_faulty_node
from rlt_operator.namespaces import get_runtime_policy
from rlt_operator.observation import Observed, Pod, RayCluster, choose_progress_interval
from rlt_operator.ray.poller import RayPoller, Target
from rlt_operator.reconcile.namespace_use import claim_accelerators
from rlt_operator.reconcile.reported_step import Undisturbed
from rlt_operator.scaling import wants_more_pods
from rlt_operator.work_queue import Key


@dataclass(frozen=True)
class Sources:
    """Where a reconciliation reads from."""

    api: KubernetesApi
    cache: Cache
    poller: RayPoller
    runtimes: RuntimePolicy = ANY_RUNTIME
    """The cluster's policy for the RLRuntimes of jobs. Labels of a namespace override it."""
    access: NetworkAccess | None = None
    """Who reaches the pods of jobs, for their NetworkPolicies; None if the jobs get none."""
    tokens: RayTokens = field(default_factory=RayTokens)
    shard: Shard = ALL
    """The shard whose number the label of new objects has."""
    undisturbed: dict[Key, Undisturbed] = field(default_factory=dict)
    """The running jobs whose next reconciliation may be about a report alone."""


async def observe(sources: Sources, key: Key) -> Observed | None:
    """The job and what belongs to it; None if the job does not exist. Raises ApiError."""
    api = sources.api
    cache = sources.cache
    poller = sources.poller
    cache.watches.check(key[0])
    cache.waiting_for_nodes.discard(key)
    sandboxes = cache.sandboxes.pop(key, None)
    manifest = await cache.read_job(api, key)
    if manifest is None:
        poller.poll(key, None)
        cache.pods.forget_removed(key)
        return None
    policy = await _get_policy(sources, manifest)
    job = parse_job(manifest, await _get_runtime(api, manifest, policy), policy)
    if job.deleting or job.managed_by != OPERATOR:
        poller.poll(key, None)
        return Observed(job)
    job = replace(job, token_suffix=sources.tokens.get_key().derive_suffix(job.uid, get_attempt_number(job.status)))
    job, missing_checkpoint = await _find_earlier_checkpoint(sources, job)
    cluster = cache.ray_clusters.get((job.namespace, names.ray_cluster(job.name)))
    observed = Observed(
        job,
        missing_checkpoint=missing_checkpoint,
        programs_missing=_lacks_programs(cache, job.namespace),
        kuberay_installed=cache.ray_clusters.served,
        kuberay=await read_kuberay(sources) if cache.ray_clusters.served and _may_start(job, cluster) else None,
        agent_sandbox_installed=not _may_start(job, cluster) or await _has_sandbox_provider(sources, job),
        kuberay_active=cache.is_kuberay_active(),
        kuberay_active_here=cache.is_kuberay_active(job.namespace),
        cluster=cluster,
        pods=tuple(_drop_other_heads(cache.pods.select(key), cluster)),
        access=sources.access,
    )
    cluster = observed.owned_cluster
    if cluster and job.spec and get_sandbox(job.spec):
        cache.sandboxes[key] = track_pool(sandboxes, observed)
        observed = replace(observed, sandboxes=cache.sandboxes[key])
    if observed.is_between_executions:  # the pods that were lost concern the earlier execution alone
        cache.pods.forget_removed(key)
    if cluster and not cluster.deleting and job.spec:
        uids = [cluster.uid, *(pod.uid for pod in observed.cluster_pods if not pod.ready)]
        observed = replace(
            observed,
            warnings=tuple(warning for uid in uids for warning in cache.warnings.select(uid)),
            removed_pods=tuple(pod for pod in cache.pods.select_removed(key) if pod.cluster_uid == cluster.uid),
            config=next(iter(cache.configs.select(key)), None),
            pod_nodes=_select_nodes(cache, observed.cluster_pods),
            queue_message=next(iter(cache.workloads.select(cluster.uid)), None),
        )
    ray = poller.poll(key, choose_target(observed))
    observed = replace(observed, ray=ray, progress_interval=choose_progress_interval(poller.count()))
    if _may_start(job, observed.cluster) or wants_more_pods(observed):
        observed = replace(observed, namespace_use=await claim_accelerators(api, cache, job))
    else:
        cache.claims.pop(key, None)
    if _needs_nodes(observed):
        cache.waiting_for_nodes.add(key)
        observed = replace(observed, nodes=cache.nodes.values())
    return observed


def list_others(cache: Cache, key: Key) -> tuple[object, ...]:
    """What `observe` reads of a running job besides the job itself and the answer of its head.

    The stores keep the same value while an object does not change, so that two results are compared in microseconds.
    """
    namespace, name = key
    cluster = cache.ray_clusters.get((namespace, names.ray_cluster(name)))
    pods = tuple(cache.pods.select(key))
    uids = [cluster.uid, *(pod.uid for pod in pods if not pod.ready)] if cluster else []
    return (
        cluster,
        pods,
        tuple(cache.pods.select_removed(key)),
        tuple(warning for uid in uids for warning in cache.warnings.select(uid)),
        tuple(cache.configs.select(key)),
        _select_nodes(cache, pods),
        cache.programs.get((namespace, name_programs())),
        cache.ray_clusters.served,
        cache.sandboxes.get(key),
    )


def is_undisturbed(cache: Cache, key: Key, before: Undisturbed, others: tuple[object, ...]) -> bool:
    """Whether the job and the other objects are as they were. Raises ApiError."""
    cache.watches.check(key[0])
    same_job = cache.watches.is_selected(key[0]) and cache.jobs.version_of(key) == int(before.version)
    return same_job and before.others == others


def _lacks_programs(cache: Cache, namespace: str) -> bool:
    programs = cache.programs.get((namespace, name_programs()))
    return programs is None or not programs.is_intact


def _select_nodes(cache: Cache, pods: Iterable[Pod]) -> tuple[Node, ...]:
    """The nodes of the pods, ordered by name."""
    found = (cache.nodes.get(("", name)) for name in sorted({pod.node for pod in pods if pod.node}))
    return tuple(node for node in found if node is not None)


def _drop_other_heads(pods: Iterable[Pod], cluster: RayCluster | None) -> Iterable[Pod]:
    """The pods without those that only claim to be the head: labels and owner references can be forged.

    A head pod that is terminating stays, because it may show a disruption.
    """
    for pod in pods:
        claims = pod.is_head and cluster is not None and pod.cluster_uid == cluster.uid and not pod.deleting
        if not (claims and cluster and cluster.head_pod and cluster.head_pod != pod.name):
            yield pod


def choose_target(observed: Observed) -> Target | None:
    """The head to poll: the running head pod of the job's own RayCluster, by its name in KubeRay's status.

    Before that status exists, a pod counts that the RayCluster owns and that has the label of a head.

    The IP of a pod that has ended may belong to another pod.
    """
    job = observed.job
    cluster = observed.owned_cluster
    job_id = observed.submission_id
    if cluster is None or cluster.deleting or job.spec is None or job_id is None:
        return None
    head = next((pod for pod in observed.cluster_pods if pod.is_head and pod.phase == "Running"), None)
    if head is None or head.ip is None:
        return None
    preflight_id = observed.preflight_id if has_preflight(job.spec) else None
    attempt = observed.attempt
    stacks_id = observed.stacks_id if attempt and attempt.stacks and attempt.stacks.result is None else None
    address = Head(job.namespace, head.name, head.ip, head.ray_token, job.uid)
    return Target(address, head.uid, job_id, observed.step_id, preflight_id, stacks_id)


def is_unknown(observed: Observed) -> bool:
    """Whether the head has not answered since the operator started. Nothing can be decided about its job then."""
    return observed.ray is None and choose_target(observed) is not None


async def read_kuberay(sources: Sources) -> KubeRay | None:
    """The fields of the installed RayCluster CRD; None if it is not installed. Raises ApiError."""
    cache = sources.cache
    crd: Manifest | None = await cache.recent.get(api_paths.RAY_CLUSTER_CRD, sources.api.get_large)
    if crd is None:
        return None
    if cache.kuberay is None or cache.kuberay[0] is not crd:
        cache.kuberay = (crd, parse_kuberay(crd))
    return cache.kuberay[1]


async def _has_sandbox_provider(sources: Sources, job: Job) -> bool:
    """Whether the API server has the objects that create the sandbox pods of the job. Raises ApiError."""
    sandbox = get_sandbox(job.spec) if job.spec else None
    if sandbox is None or sandbox.provider != AGENT_SANDBOX:
        return True
    try:
        return bool(await sources.cache.recent.get(api_paths.AGENT_SANDBOX, sources.api.get))
    except UnknownResourceError:
        return False


def _may_start(job: Job, cluster: RayCluster | None) -> bool:
    """Whether the next step may be the creation of the RayCluster."""
    return cluster is None and job.spec is not None and not job.is_suspended and not job.has_ended


async def _get_policy(sources: Sources, manifest: Manifest) -> RuntimePolicy:
    """The policy for the job's RLRuntime. It applies until the job is accepted."""
    conditions = manifest.get("status", {}).get("conditions", [])
    if any(each["type"] == ConditionType.ACCEPTED and each["status"] == "True" for each in conditions):
        return ANY_RUNTIME
    path = api_paths.namespace(manifest["metadata"]["namespace"])
    return get_runtime_policy(await sources.cache.recent.get(path, sources.api.get), sources.runtimes)


async def _get_runtime(api: KubernetesApi, manifest: Manifest, policy: RuntimePolicy) -> RuntimeSnapshot | None:
    """The current RLRuntime, for a job that has one and no resolved spec in its status."""
    reference = add_default_runtime(manifest.get("spec", {}), policy).get("runtimeRef")
    status = manifest.get("status", {})
    if reference is None or status.get("resolvedSpec"):
        return None
    try:
        runtime = await api.get(api_paths.runtime(reference["name"]))
    except UnknownResourceError:
        return None
    return parse_runtime(runtime) if runtime else None


async def _find_earlier_checkpoint(sources: Sources, job: Job) -> tuple[Job, Missing | None]:
    """The job with the checkpoint of spec.checkpoint.resumeFromJob, or why there is none."""
    if job.spec is None or not waits_for_earlier_job(job.spec):
        return job, None
    earlier = (job.namespace, job.spec.checkpoint.resume_from_job or "")
    other = await sources.cache.read_job(sources.api, earlier)
    found = find_checkpoint(job.spec, parse_job(other) if other else None)
    return (job, found) if isinstance(found, Missing) else (resume_from(job, found), None)


def _needs_nodes(observed: Observed) -> bool:
    to_decide = _may_start(observed.job, observed.cluster) and needs_decision(observed.job)
    return to_decide or needs_faulty_node(observed)
