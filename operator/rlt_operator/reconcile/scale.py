"""The write that changes the number of pods in a group of the RayCluster."""

from __future__ import annotations

from rlt_core import names
from rlt_core.job import Job
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import ApiError, KubernetesApi
from rlt_operator.cache.cache import Cache
from rlt_operator.scaling import Scaling, build_patch

CONFLICT = 409
"""HTTP status if the RayCluster has another resourceVersion."""


async def scale_group(api: KubernetesApi, cache: Cache, job: Job, scaling: Scaling) -> None:
    """Change the group, unless the RayCluster has changed since it was observed: its change wakes the job.

    Raises ApiError.
    """
    path = api_paths.ray_cluster(job.namespace, names.ray_cluster(job.name))
    cluster = await api.get(path)
    patch = build_patch(cluster, scaling) if cluster else None
    if patch is None:
        return
    try:
        cache.put(await api.patch(path, patch))
    except ApiError as error:
        if error.status != CONFLICT:
            raise
