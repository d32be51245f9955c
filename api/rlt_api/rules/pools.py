"""The node pools of the runtime that the worker groups name."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_api.findings.finding import Finding, use
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.spec.runtime import RLRuntimeSpec


def validate_pools(spec: RLTrainingJobSpec, runtime: RLRuntimeSpec) -> Iterator[Finding]:
    """cluster.workers[].pool must be the name of one of the runtime's node pools."""
    pools = [pool.name for pool in runtime.node_pools]
    for index, group in enumerate(spec.cluster.workers):
        if group.pool is not None and group.pool not in pools:
            field = f"spec.cluster.workers[{index}].pool"
            message = "is not a node pool of the runtime"
            fix = f"use one of {', '.join(pools)}" if pools else "remove it: the runtime has no node pools"
            yield Finding(field, group.pool, message, fix, rule="pool", edits=use(field, *pools))
