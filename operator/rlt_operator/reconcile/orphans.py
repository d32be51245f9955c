"""RayClusters without a job: `kubectl delete --cascade=orphan` keeps the RayCluster, and nothing stops it.

The operator reports it and deletes nothing: its user may want to keep it.
"""

from __future__ import annotations

import logging

from rlt_core import names
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.manifests import parse_ray_cluster
from rlt_operator.observation import RayCluster
from rlt_operator.work_queue import Key

log = logging.getLogger("rlt_operator")


def count_orphans(cache: Cache) -> int:
    """Number of RayClusters in the cache that the operator has created and that no object owns."""
    clusters = (cache.ray_clusters.get(name) for name in cache.ray_clusters.names())
    return sum(_is_orphan(cluster) for cluster in clusters)


async def report_orphan(api: KubernetesApi, cache: Cache, key: Key) -> None:
    """Log the RayCluster of a job that does not exist, if the API server has it without an owner."""
    name = (key[0], names.ray_cluster(key[1]))
    if not _is_orphan(cache.ray_clusters.get(name)):
        return
    try:
        job = await api.get(api_paths.job(*key))
        found = await api.get(api_paths.ray_cluster(*name))
    except ApiError as error:
        log.warning("cannot read RayCluster %s/%s, whose job does not exist: %s", *name, error)
        return
    if job is None and found is not None and _is_orphan(parse_ray_cluster(found)):
        log.warning(
            "RayCluster %s/%s has no RLTrainingJob and keeps its pods and accelerators: to stop it, run "
            "`kubectl -n %s delete raycluster %s`",
            *name,
            *name,
            extra={"job": "/".join(key)},
        )


def _is_orphan(cluster: RayCluster | None) -> bool:
    return cluster is not None and cluster.programs is not None and cluster.owner_uid is None and not cluster.deleting
