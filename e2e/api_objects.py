"""Read custom objects in this process: polling with kubectl takes a tenth of a second of CPU for each start of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException, CustomObjectsApi
from kubernetes.config import new_client_from_config
from urllib3.exceptions import HTTPError

from cluster import Cluster

TIMEOUT_S = 30.0
RESOURCES = {
    "rltrainingjob": ("rlt.dev", "v1alpha1", "rltrainingjobs"),
    "raycluster": ("ray.io", "v1", "rayclusters"),
}
"""Kind as kubectl accepts it -> group, version and plural."""


def read_custom_object(cluster: Cluster, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
    """Read an object of RESOURCES. Returns None if it does not exist. Raises ValueError as Cluster.kubectl does."""
    group, version, plural = RESOURCES[kind]
    api = _connect(cluster.kubeconfig, cluster.kubeconfig.stat().st_mtime_ns)
    try:
        found: Any = api.get_namespaced_custom_object(
            group, version, namespace, plural, name, _request_timeout=TIMEOUT_S
        )
    except ApiException as error:
        if error.status == 404:
            return None
        raise ValueError(f"{plural} {namespace}/{name}: {error.reason}: {error.body}") from error
    except HTTPError as error:
        raise ValueError(f"{plural} {namespace}/{name}: {error}") from error
    return dict(found)


@cache
def _connect(kubeconfig: Path, modified: int) -> CustomObjectsApi:
    """One connection for each kubeconfig. A cluster that is created again writes another one at the same path."""
    return CustomObjectsApi(new_client_from_config(str(kubeconfig)))  # type: ignore[no-untyped-call]
