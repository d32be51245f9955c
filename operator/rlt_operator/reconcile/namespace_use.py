"""Counts the accelerators of a namespace, for the maximum in a job's RLRuntime.

Of two jobs that start or grow at the same time, the first one claims its accelerators until the cache contains its
RayCluster with them.
The replica that led before may have created RayClusters that the watch of this one has not delivered yet, so that a
replica reads the RayClusters of each such namespace once.
"""

from __future__ import annotations

import functools
from collections import Counter

from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_core import names
from rlt_core.job import Job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.observation import NamespaceUse


async def claim_accelerators(api: KubernetesApi, cache: Cache, job: Job) -> NamespaceUse | None:
    """The use of the namespace if the job's runtime limits it. If the job fits, it claims its accelerators.

    Raises ApiError.
    """
    if job.spec is None or job.runtime is None:
        return None
    runtime = await cache.recent.get(api_paths.runtime(job.runtime.name), api.get)
    maximum = ((runtime or {}).get("spec", {}).get("maxPerNamespace") or {}).get("accelerators")
    if maximum is None:
        return None
    if job.namespace not in cache.counted:
        await cache.recent.get(api_paths.ray_clusters(job.namespace), functools.partial(_complete, api, cache))
        cache.counted.add(job.namespace)
    wanted = count_accelerators(job.spec)
    others = _count_others(cache, job)
    used = sum(others[resource] for resource in wanted)
    use = NamespaceUse(job.runtime.name, maximum, used, wanted.total())
    key = (job.namespace, job.name)
    if use.fits:
        cache.claims[key] = wanted
    else:
        cache.claims.pop(key, None)
    return use


async def _complete(api: KubernetesApi, cache: Cache, path: str) -> None:
    """Add the RayClusters of a namespace to the cache. Raises ApiError."""
    if cache.ray_clusters.served:
        async for clusters, _ in api.list_pages(path):
            for cluster in clusters:
                cache.ray_clusters.put_response(cluster)


def count_accelerators(spec: RLTrainingJobSpec) -> Counter[str]:
    """Resource -> number of accelerators of all workers."""
    found: Counter[str] = Counter()
    for group in spec.cluster.workers:
        if group.accelerator:
            found[group.accelerator.resource_name] += group.replicas * group.accelerator.count
    return found


def _count_others(cache: Cache, job: Job) -> Counter[str]:
    """The devices of the other RayClusters of the namespace, queued and claimed ones included."""
    found: Counter[str] = Counter()
    for name in cache.ray_clusters.names(job.namespace):
        cluster = cache.ray_clusters.get(name)
        if cluster and name != (job.namespace, names.ray_cluster(job.name)):
            found.update(dict(cluster.devices))
    for (namespace, other), claimed in cache.claims.items():
        if namespace == job.namespace and other != job.name:
            cluster = cache.ray_clusters.get((namespace, names.ray_cluster(other)))
            found += claimed - Counter(dict(cluster.devices) if cluster else {})
    return found
