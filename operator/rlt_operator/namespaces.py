"""Reads the labels of a namespace that decide on the RLRuntime of its jobs."""

from __future__ import annotations

from rlt_api.spec.runtime_policy import RuntimePolicy, parse_runtime_policy
from rlt_core.job import Manifest


def get_runtime_policy(manifest: Manifest | None, cluster: RuntimePolicy) -> RuntimePolicy:
    """The policy of a namespace. `cluster` applies where it has no label."""
    return parse_runtime_policy((manifest or {}).get("metadata", {}).get("labels", {}), cluster)
