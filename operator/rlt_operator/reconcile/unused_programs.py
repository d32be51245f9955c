"""The ConfigMaps with programs that no job of their namespace needs any more."""

from __future__ import annotations

import logging
from collections.abc import Collection

from rlt_core import names
from rlt_core.children.programs import name_programs
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.cache.store import Name

log = logging.getLogger("rlt_operator")


async def delete_unused_programs(api: KubernetesApi, cache: Cache, namespace: str | None = None) -> None:
    """Delete them, in one namespace or in all. An error is logged: the next call tries again.

    A ConfigMap with the label and another content stays: a user may have created it. One that a RayCluster mounts stays
    too, also if the cache lacks the RayCluster yet: an earlier leader, possibly of another version, has created it.
    """
    objects = {name: cache.programs.get(name) for name in cache.programs.names() if namespace in (None, name[0])}
    found = {name: programs.uid for name, programs in objects.items() if programs and programs.is_intact}
    if not found:
        return
    clusters = {name: cache.ray_clusters.get(name) for name in cache.ray_clusters.names()}
    used = {(name[0], cluster.programs) for name, cluster in clusters.items() if cluster}
    for name in find_unused(found, used, {job[0] for job in cache.jobs.names()}):
        try:
            if not await _is_mounted(api, cache, name):
                await api.delete(api_paths.config_map(*name), uid=found[name])
        except ApiError as error:
            log.warning("cannot delete ConfigMap %s/%s: %s", *name, error)


async def _is_mounted(api: KubernetesApi, cache: Cache, name: Name) -> bool:
    """Whether the API server has a RayCluster whose pods mount it. Raises ApiError."""
    namespace, programs = name
    if not cache.ray_clusters.served:
        return False
    label = f"{names.PROGRAMS_LABEL}={programs}"
    return bool(await api.list(api_paths.ray_clusters(namespace), labelSelector=label, limit="1"))


def find_unused(
    found: Collection[Name], used: Collection[tuple[str, str | None]], with_jobs: Collection[str]
) -> list[Name]:
    """Return the ConfigMaps of `found` that no RayCluster mounts. This version of the programs stays in the namespaces
    `with_jobs`: a job without a RayCluster may get one at any time."""
    current = name_programs()
    return [name for name in found if name not in used and not (name[1] == current and name[0] in with_jobs)]
