"""The kinds that the operator watches, and reads of a single job that bypass the watches."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rlt_api.schema.crd import KIND
from rlt_core import names
from rlt_core.children.programs import is_programs
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.job import Manifest
from rlt_core.kuberay import KubeRay
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi, UnknownResourceError
from rlt_operator.cache.early_warnings import EarlyWarnings
from rlt_operator.cache.job_list import JobList, Select
from rlt_operator.cache.job_store import JobStore
from rlt_operator.cache.recent_reads import RecentReads
from rlt_operator.cache.reflector import OnChange, Reflector
from rlt_operator.cache.store import Name, Store, get_name
from rlt_operator.cache.watches import Watches
from rlt_operator.diagnosis.disruption import list_drain_taints
from rlt_operator.manifests import (
    parse_config,
    parse_pod,
    parse_programs,
    parse_ray_cluster,
    parse_warning,
    parse_workload,
)
from rlt_operator.observation import Config, Pod, Programs, RayCluster, SandboxPool, WarningEvent
from rlt_operator.work_queue import Key

MAX_WARNINGS = 500
"""Maximum number of events of a namespace. They explain pods that do not start, most of them within minutes."""
MAX_REMOVED_PODS = 16
"""Maximum number of removed pods of a job that are kept. The first ones explain the end of an attempt."""
KUBERAY_ACTIVE_S = 10.0
"""KubeRay is active for this time after a change of a RayCluster."""
EVERYTHING: Mapping[str, str] = {}
OF_A_JOB = {"labelSelector": names.JOB_LABEL}
PROGRAMS = {"labelSelector": names.PROGRAMS_LABEL}
APPLIED = {"labelSelector": f"{names.JOB_LABEL},app.kubernetes.io/managed-by={names.FIELD_OWNER}"}
WARNINGS = {"fieldSelector": "type=Warning"}


@dataclass
class Cache:
    """What the operator has read. Each store holds a reduced copy of one kind."""

    wake: Callable[[Key], None]
    """Called with a job when an object of the job changes."""
    select: Select = lambda namespace, wanted: None
    """Called with a namespace, or None for all, whose jobs are to be watched, or no longer."""
    jobs: JobStore = field(default_factory=JobStore)
    ray_clusters: Store[RayCluster] = field(default_factory=lambda: Store(parse_ray_cluster, get_name))
    pods: Store[Pod] = field(default_factory=lambda: Store(parse_pod, get_job, max_removed=MAX_REMOVED_PODS))
    """Pods with the label of a job, by job."""
    configs: Store[Config] = field(default_factory=lambda: Store(parse_config, get_job))
    """Key -> digest of the ConfigMaps that the operator created, by job."""
    programs: Store[Programs] = field(default_factory=lambda: Store(parse_programs, get_name))
    """ConfigMaps with the programs for pods."""
    warnings: Store[WarningEvent] = field(init=False)
    """Events of type Warning on pods and RayClusters of known jobs, by uid of the object."""
    early_warnings: EarlyWarnings = field(default_factory=EarlyWarnings)
    nodes: Store[Node] = field(default_factory=lambda: Store(_parse_node, get_name))
    workloads: Store[str] = field(default_factory=lambda: Store(parse_workload, _get_ray_cluster_uid))
    """Why Kueue does not admit a RayCluster, by its uid."""
    waiting_for_nodes: set[Key] = field(default_factory=set)
    """Jobs that wait for a change of the nodes. Every changed node wakes them."""
    sandboxes: dict[Key, SandboxPool] = field(default_factory=dict)
    """The sandbox pods of jobs with a RayCluster, as reconcile/sandbox_pools.py has read them."""
    claims: dict[Key, Counter[str]] = field(default_factory=dict)
    """Accelerators of jobs whose RayCluster is about to be created, in namespaces with a maximum."""
    counted: set[str] = field(default_factory=set)
    """Namespaces with a maximum, whose RayClusters this process has read since it leads."""
    written: set[Key] = field(default_factory=set)
    """Jobs whose status this process has written. The cache is not behind that write."""
    watches: Watches = field(init=False)
    job_lists: dict[str | None, JobList] = field(default_factory=dict)
    """By selected namespace, or under None for all."""
    recent: RecentReads = field(default_factory=RecentReads)
    """Objects without a watch that many jobs or namespaces read: namespaces, the RayCluster CRD, Kueue's versions."""
    kuberay: tuple[Manifest, KubeRay] | None = None
    """The RayCluster CRD that was read last, and its fields: parsing them takes long."""

    _kuberay_acted: dict[str | None, float] = field(default_factory=dict, init=False)
    """When a RayCluster with a status changed last (time.monotonic), by namespace; None: in any one."""

    def __post_init__(self) -> None:
        self.warnings = Store(self._parse_warning, _get_object_uid, max_of_a_namespace=MAX_WARNINGS)
        self.watches = Watches(self._build_reflectors, self._wake_namespace, self._forget_namespace)
        self.watches.of_cluster.append(_watch("nodes", self.nodes, api_paths.NODES, self._wake_for_node))

    def _build_reflectors(self, api: KubernetesApi, namespace: str | None) -> list[Reflector]:
        """The watches of a namespace, or of all."""
        config_maps = api_paths.config_maps(namespace)
        ray_clusters = api_paths.ray_clusters(namespace)
        jobs = JobList(self.jobs, self._wake_self, namespace, self.select)
        self.job_lists[namespace] = jobs
        pods = _watch("pods", self.pods, api_paths.pods(namespace), self._wake_of_pod, namespace, OF_A_JOB)

        async def find_events() -> str:
            await jobs.synced.wait()  # the events of known jobs are kept
            await pods.synced.wait()
            return api_paths.events(namespace)

        queued = {"labelSelector": names.WORKLOAD_LABEL}
        find_workloads = functools.partial(_find_workloads, api, self.recent, namespace)
        return [
            jobs,
            pods,
            _watch("rayclusters", self.ray_clusters, ray_clusters, self._wake_same_name, namespace),
            _watch("configmaps", self.configs, config_maps, self._wake_labelled, namespace, APPLIED),
            _watch("programs", self.programs, config_maps, self._wake_all_of_namespace, namespace, PROGRAMS),
            Reflector("events", self.warnings, find_events, self._wake_involved, WARNINGS, namespace),
            Reflector("workloads", self.workloads, find_workloads, self._wake_queued, queued, namespace),
        ]

    def _forget_namespace(self, namespace: str) -> None:
        """Drop all objects of a namespace that is no longer selected, and end the reconciliations of its jobs."""
        self.job_lists.pop(namespace, None)
        self.counted.discard(namespace)
        jobs = self.jobs.names(namespace)
        stores: tuple[Store[Any], ...] = (
            self.jobs,
            self.ray_clusters,
            self.pods,
            self.configs,
            self.programs,
            self.warnings,
            self.workloads,
        )
        for store in stores:
            store.forget_namespace(namespace)
        for key in jobs:
            self.wake(key)

    def get_job(self, key: Key) -> Manifest | None:
        """The job, or of a large one the metadata; None if it does not exist, or its namespace is not selected."""
        return self.jobs.get_manifest(key) if self.watches.is_selected(key[0]) else None

    async def read_job(self, api: KubernetesApi, key: Key) -> Manifest | None:
        """The job; None if it does not exist, or its namespace is not selected. Raises ApiError."""
        return await self.jobs.read(api, key) if self.watches.is_selected(key[0]) else None

    def has_job(self, key: Key) -> bool:
        """Whether the job exists, and its namespace is selected."""
        return self.watches.is_selected(key[0]) and self.jobs.get(key) is not None

    def receive_job(self, change: str | None, job: Manifest) -> None:
        """Store what kopf reports of a job: ADDED, MODIFIED, DELETED, or None if it has listed the job."""
        namespace, _ = get_name(job)
        found = self.job_lists.get(namespace, self.job_lists.get(None))
        if found:
            found.receive(change, job)

    def read_jobs_again(self) -> None:
        """Read all jobs: their schema has changed."""
        for jobs in self.job_lists.values():
            jobs.read_again()

    def put(self, written: Manifest) -> None:
        """Store the response to one of the operator's writes, which the watch delivers later."""
        if not self.watches.is_selected(written["metadata"]["namespace"]):
            return
        configs = self.programs if is_programs(written) else self.configs
        stores: dict[str, Store[Any]] = {KIND: self.jobs, "RayCluster": self.ray_clusters, "ConfigMap": configs}
        if store := stores.get(written["kind"]):
            store.put_response(written)

    async def refresh(self, api: KubernetesApi, key: Key) -> None:
        """Read the job, its RayCluster and its pods from the API server. Raises ApiError.

        Before a decision that cannot be undone: a watch may be behind, and watches of two kinds are not synchronized.
        """
        await asyncio.gather(self.refresh_job(api, key), self._refresh_cluster(api, key), self.refresh_pods(api, key))

    async def refresh_job(self, api: KubernetesApi, key: Key) -> None:
        """Read the job from the API server. Raises ApiError."""
        before = self.jobs.version_of(key)
        job = await api.get(api_paths.job(*key))
        self.jobs.put_response(job) if job else self.jobs.forget(key, before)

    async def _refresh_cluster(self, api: KubernetesApi, key: Key) -> None:
        before = self.ray_clusters.version_of(key)
        cluster = await _get_ray_cluster(api, key)
        self.ray_clusters.put_response(cluster) if cluster else self.ray_clusters.forget(key, before)

    async def refresh_pods(self, api: KubernetesApi, key: Key) -> None:
        """Read the job's pods from the API server. Raises ApiError."""
        namespace, name = key
        selector = f"{names.JOB_LABEL}={name}"
        pods, version = await api.list_with_version(api_paths.pods(namespace), labelSelector=selector)
        for pod in pods:
            self.pods.put_response(pod)
        self.pods.retain_index(key, map(get_name, pods), int(version))

    def is_kuberay_active(self, namespace: str | None = None) -> bool:
        """Whether a RayCluster of the namespace, or of any one, has changed with a status in KUBERAY_ACTIVE_S."""
        return time.monotonic() - self._kuberay_acted.get(namespace, -math.inf) < KUBERAY_ACTIVE_S

    def _wake(self, key: Key) -> None:
        """Wake a job, once everything in its namespace is known. What remains of a job that is gone is dropped."""
        if self.jobs.get(key) is None:
            self.pods.forget_removed(key)
        if self.watches.is_complete(key[0]):
            self.wake(key)

    def _wake_self(self, name: Name, manifest: Manifest | None) -> None:
        self._wake(name)

    def _wake_same_name(self, name: Name, manifest: Manifest | None) -> None:
        if manifest and manifest.get("status"):
            self._kuberay_acted |= dict.fromkeys((None, name[0]), time.monotonic())
        self._wake(name)

    def _wake_labelled(self, name: Name, manifest: Manifest | None) -> None:
        if manifest:
            self._wake(get_job(manifest))
        else:
            self._wake_namespace(name[0])

    def _wake_of_pod(self, name: Name, manifest: Manifest | None) -> None:
        for early in self.early_warnings.take(name):
            self.warnings.put(early)
        self._wake_labelled(name, manifest)

    def _wake_involved(self, name: Name, manifest: Manifest | None) -> None:
        """Wake the job of the pod or RayCluster that an event is about."""
        if manifest is None:
            return
        involved = manifest["involvedObject"]
        about = _get_involved(manifest)
        if involved.get("kind") == "RayCluster":
            self._wake(about)
        elif job := self.pods.get_index(about):
            self._wake(cast(Key, job))

    def _wake_queued(self, name: Name, manifest: Manifest | None) -> None:
        owners = (manifest or {"metadata": {}})["metadata"].get("ownerReferences", [])
        for owner in owners:
            if owner["kind"] == "RayCluster":
                self._wake((name[0], owner["name"]))

    def _wake_all_of_namespace(self, name: Name, manifest: Manifest | None) -> None:
        self._wake_namespace(name[0])

    def _wake_for_node(self, name: Name, manifest: Manifest | None) -> None:
        for key in self.waiting_for_nodes:
            self._wake(key)
        node = self.nodes.get(name)
        if manifest and node and list_drain_taints(node):
            self._wake_jobs_on(node)

    def _wake_jobs_on(self, node: Node) -> None:
        """Wake the jobs with a pod on the node."""
        for name in self.pods.names():
            pod = self.pods.get(name)
            if pod and pod.node == node.name:
                self._wake(cast(Key, self.pods.get_index(name)))

    def _wake_namespace(self, namespace: str | None) -> None:
        """Wake all jobs of the namespace, or all jobs. It is rare: programs changed, or an object of an unknown job."""
        for key in self.jobs.names(namespace):
            self._wake(key)

    def _parse_warning(self, manifest: Manifest) -> WarningEvent | None:
        """An event on a pod that the cache contains, or on the RayCluster or the sandboxes of a job; else None."""
        kind = manifest["involvedObject"].get("kind")
        about = _get_involved(manifest)
        if kind == "RayCluster":
            return parse_warning(manifest) if self.jobs.get(about) else None
        if kind == "Job":
            job = (about[0], names.find_job_of_sandboxes(about[1]))
            return parse_warning(manifest) if self.jobs.get(job) else None
        if kind != "Pod":
            return None
        if self.pods.get(about):
            return parse_warning(manifest)
        self.early_warnings.put(get_name(manifest), about, manifest)
        return None


def _watch(
    kind: str,
    store: Store[Any],
    path: str,
    on_change: OnChange,
    namespace: str | None = None,
    query: Mapping[str, str] = EVERYTHING,
) -> Reflector:
    async def find_path() -> str:
        return path

    return Reflector(kind, store, find_path, on_change, query, namespace)


def get_job(manifest: Manifest) -> Key:
    """Namespace and name of the job that an object has in its label."""
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata.get("labels", {}).get(names.JOB_LABEL, "")


async def _find_workloads(api: KubernetesApi, recent: RecentReads, namespace: str | None) -> str:
    """The path of Kueue's Workloads in the version that the API server prefers. Raises UnknownResourceError."""
    group: Manifest | None = await recent.get(api_paths.KUEUE, api.get)
    if group is None:
        raise UnknownResourceError(404, "Kueue is not installed")
    return api_paths.workloads(namespace, group["preferredVersion"]["version"])


async def _get_ray_cluster(api: KubernetesApi, key: Key) -> Manifest | None:
    namespace, name = key
    try:
        return await api.get(api_paths.ray_cluster(namespace, names.ray_cluster(name)))
    except UnknownResourceError:
        return None


def _parse_node(manifest: Manifest) -> Node:
    (node,) = parse_nodes([manifest])
    return node


def _get_involved(manifest: Manifest) -> Name:
    """Namespace and name of the object that an event is about."""
    involved = manifest["involvedObject"]
    return involved.get("namespace", manifest["metadata"]["namespace"]), involved.get("name", "")


def _get_object_uid(manifest: Manifest) -> Hashable:
    return str(manifest["involvedObject"].get("uid", ""))


def _get_ray_cluster_uid(manifest: Manifest) -> Hashable:
    return str(manifest["metadata"].get("labels", {}).get(names.WORKLOAD_LABEL, ""))
