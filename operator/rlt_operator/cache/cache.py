"""The kinds that the operator watches, and reads of a single job that bypass the watches."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rlt_api.schema.crd import KIND
from rlt_core import names
from rlt_core.children.programs import is_programs
from rlt_core.fabric.nodes import Node, parse_nodes
from rlt_core.job import Manifest
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi, UnknownResourceError
from rlt_operator.cache.recent_reads import RecentReads
from rlt_operator.cache.reflector import OnChange, Reflector
from rlt_operator.cache.store import Name, Store, get_name
from rlt_operator.diagnosis.disruption import list_drain_taints
from rlt_operator.kuberay import KubeRay
from rlt_operator.manifests import (
    parse_config,
    parse_pod,
    parse_programs,
    parse_ray_cluster,
    parse_warning,
    parse_workload,
)
from rlt_operator.observation import Config, Pod, Programs, RayCluster, WarningEvent
from rlt_operator.work_queue import Key

MAX_WARNINGS = 5000
"""Maximum number of events that are kept. They explain pods that do not start, most of them within minutes."""
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
    jobs: Store[str] = field(default_factory=lambda: Store(_parse_job, get_name))
    """Jobs as JSON, which takes a fifth of the parsed object's memory."""
    ray_clusters: Store[RayCluster] = field(default_factory=lambda: Store(parse_ray_cluster, get_name))
    pods: Store[Pod] = field(default_factory=lambda: Store(parse_pod, get_job, max_removed=MAX_REMOVED_PODS))
    """Pods with the label of a job, by job."""
    configs: Store[Config] = field(default_factory=lambda: Store(parse_config, get_job))
    """Key -> digest of the ConfigMaps that the operator created, by job."""
    programs: Store[Programs] = field(default_factory=lambda: Store(parse_programs, get_name))
    """ConfigMaps with the programs for pods."""
    warnings: Store[WarningEvent] = field(
        default_factory=lambda: Store(_parse_pod_warning, _get_object_uid, max_objects=MAX_WARNINGS)
    )
    """Events of type Warning on pods and RayClusters, by uid of the object."""
    nodes: Store[Node] = field(default_factory=lambda: Store(_parse_node, get_name))
    workloads: Store[str] = field(default_factory=lambda: Store(parse_workload, _get_ray_cluster_uid))
    """Why Kueue does not admit a RayCluster, by its uid."""
    waiting_for_nodes: set[Key] = field(default_factory=set)
    """Jobs that wait for a change of the nodes. Every changed node wakes them."""
    written: set[Key] = field(default_factory=set)
    """Jobs whose status this process has written. The cache is not behind that write."""
    reflectors: list[Reflector] = field(default_factory=list)
    recent: RecentReads = field(default_factory=RecentReads)
    """Objects without a watch that many jobs read: namespaces and the RayCluster CRD."""
    kuberay: tuple[Manifest, KubeRay] | None = None
    """The RayCluster CRD that was read last, and its fields: parsing them takes long."""
    on_secret: Callable[[Manifest], None] = lambda manifest: None
    """Called with each Secret that the operator has written."""

    _kuberay_acted: float = field(default=-math.inf, init=False)
    """When a RayCluster with a status changed last (time.monotonic)."""

    def start(self, api: KubernetesApi, namespaces: Collection[str]) -> list[asyncio.Task[None]]:
        """Watch the namespaces, or all of them if the collection is empty. The tasks run until cancelled."""
        every: list[str | None] = [*namespaces] or [None]
        for namespace in every:
            self._watch("rltrainingjobs", self.jobs, api_paths.jobs(namespace), self._wake_self, namespace)
            self._watch(
                "rayclusters", self.ray_clusters, api_paths.ray_clusters(namespace), self._wake_same_name, namespace
            )
            self._watch("pods", self.pods, api_paths.pods(namespace), self._wake_labelled, namespace, OF_A_JOB)
            path = api_paths.config_maps(namespace)
            self._watch("configmaps", self.configs, path, self._wake_labelled, namespace, APPLIED)
            self._watch("programs", self.programs, path, self._wake_all_of_namespace, namespace, PROGRAMS)
            self._watch("events", self.warnings, api_paths.events(namespace), self._wake_involved, namespace, WARNINGS)
            find_path = functools.partial(_find_workloads, api, namespace)
            queued = {"labelSelector": names.WORKLOAD_LABEL}
            self.reflectors.append(
                Reflector("workloads", self.workloads, find_path, self._wake_queued, queued, namespace)
            )
        self._watch("nodes", self.nodes, api_paths.NODES, self._wake_for_node)
        return [asyncio.create_task(each.run(api), name=f"watch {each.kind}") for each in self.reflectors]

    def _watch(
        self,
        kind: str,
        store: Store[Any],
        path: str,
        on_change: OnChange,
        namespace: str | None = None,
        query: Mapping[str, str] = EVERYTHING,
    ) -> None:
        async def find_path() -> str:
            return path

        self.reflectors.append(Reflector(kind, store, find_path, on_change, query, namespace))

    async def wait(self) -> None:
        """Wait until every store contains a complete list."""
        for each in self.reflectors:
            await each.synced.wait()

    def check(self, namespace: str) -> None:
        """Raise the ApiError of a kind that the API server does not let the operator list or watch in the namespace."""
        for each in self.reflectors:
            if each.error and each.error.rejected and each.namespace in (None, namespace):
                raise ApiError(each.error.status, str(each.error))

    def get_job(self, key: Key) -> Manifest | None:
        """The job, without its managedFields."""
        text = self.jobs.get(key)
        return json.loads(text) if text else None

    def put(self, written: Manifest) -> None:
        """Store the response to one of the operator's writes, which the watch delivers later."""
        if written["kind"] == "Secret":
            self.on_secret(written)
        configs = self.programs if is_programs(written) else self.configs
        stores: dict[str, Store[Any]] = {KIND: self.jobs, "RayCluster": self.ray_clusters, "ConfigMap": configs}
        if store := stores.get(written["kind"]):
            store.put_response(written)

    async def refresh(self, api: KubernetesApi, key: Key) -> None:
        """Read the job, its RayCluster and its pods from the API server. Raises ApiError.

        Before a decision that cannot be undone: a watch may be behind, and watches of two kinds are not synchronized.
        """
        await asyncio.gather(self._refresh_job(api, key), self._refresh_cluster(api, key), self.refresh_pods(api, key))

    async def _refresh_job(self, api: KubernetesApi, key: Key) -> None:
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

    def is_kuberay_active(self) -> bool:
        """Whether a RayCluster with a status has changed in the last KUBERAY_ACTIVE_S."""
        return time.monotonic() - self._kuberay_acted < KUBERAY_ACTIVE_S

    def _wake_self(self, name: Name, manifest: Manifest | None) -> None:
        self.wake(name)

    def _wake_same_name(self, name: Name, manifest: Manifest | None) -> None:
        if manifest and manifest.get("status"):
            self._kuberay_acted = time.monotonic()
        self.wake(name)

    def _wake_labelled(self, name: Name, manifest: Manifest | None) -> None:
        if manifest:
            self.wake(get_job(manifest))
        else:
            self._wake_namespace(name[0])

    def _wake_involved(self, name: Name, manifest: Manifest | None) -> None:
        """Wake the job of the pod or RayCluster that an event is about."""
        if manifest is None:
            return
        involved = manifest["involvedObject"]
        about = (involved.get("namespace", name[0]), involved.get("name", ""))
        if involved.get("kind") == "RayCluster":
            self.wake(about)
        elif job := self.pods.get_index(about):
            self.wake(cast(Key, job))

    def _wake_queued(self, name: Name, manifest: Manifest | None) -> None:
        owners = (manifest or {"metadata": {}})["metadata"].get("ownerReferences", [])
        for owner in owners:
            if owner["kind"] == "RayCluster":
                self.wake((name[0], owner["name"]))

    def _wake_all_of_namespace(self, name: Name, manifest: Manifest | None) -> None:
        self._wake_namespace(name[0])

    def _wake_for_node(self, name: Name, manifest: Manifest | None) -> None:
        for key in self.waiting_for_nodes:
            self.wake(key)
        node = self.nodes.get(name)
        if manifest and node and list_drain_taints(node):
            self._wake_jobs_on(node)

    def _wake_jobs_on(self, node: Node) -> None:
        """Wake the jobs with a pod on the node."""
        for name in self.pods.names():
            pod = self.pods.get(name)
            if pod and pod.node == node.name:
                self.wake(cast(Key, self.pods.get_index(name)))

    def _wake_namespace(self, namespace: str) -> None:
        """Wake all jobs of the namespace, which is rare: its programs changed, or an object of an unknown job."""
        for key in self.jobs.names():
            if key[0] == namespace:
                self.wake(key)


def get_job(manifest: Manifest) -> Key:
    """Namespace and name of the job that an object has in its label."""
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata.get("labels", {}).get(names.JOB_LABEL, "")


async def _find_workloads(api: KubernetesApi, namespace: str | None) -> str:
    """The path of Kueue's Workloads in the version that the API server prefers. Raises UnknownResourceError."""
    group = await api.get(api_paths.KUEUE)
    if group is None:
        raise UnknownResourceError(404, "Kueue is not installed")
    return api_paths.workloads(namespace, group["preferredVersion"]["version"])


async def _get_ray_cluster(api: KubernetesApi, key: Key) -> Manifest | None:
    namespace, name = key
    try:
        return await api.get(api_paths.ray_cluster(namespace, names.ray_cluster(name)))
    except UnknownResourceError:
        return None


def _parse_job(manifest: Manifest) -> str:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
    return json.dumps({**manifest, "metadata": metadata})


def _parse_pod_warning(manifest: Manifest) -> WarningEvent | None:
    return parse_warning(manifest) if manifest["involvedObject"].get("kind") in ("Pod", "RayCluster") else None


def _parse_node(manifest: Manifest) -> Node:
    (node,) = parse_nodes([manifest])
    return node


def _get_object_uid(manifest: Manifest) -> Hashable:
    return str(manifest["involvedObject"].get("uid", ""))


def _get_ray_cluster_uid(manifest: Manifest) -> Hashable:
    return str(manifest["metadata"].get("labels", {}).get(names.WORKLOAD_LABEL, ""))
