"""Reads the labels of a namespace that decide on the RLRuntime of its jobs."""

from __future__ import annotations

from rlt_api.runtime_policy import RuntimePolicy, parse_runtime_policy
from rlt_core.kubernetes import api_paths
from rlt_core.kubernetes.client import KubernetesApi


async def get_runtime_policy(api: KubernetesApi, namespace: str, cluster: RuntimePolicy) -> RuntimePolicy:
    """The policy of the namespace. `cluster` applies where it has no label. Raises ApiError."""
    manifest = await api.get(api_paths.namespace(namespace))
    return parse_runtime_policy((manifest or {}).get("metadata", {}).get("labels", {}), cluster)
