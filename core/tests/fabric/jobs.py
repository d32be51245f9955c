"""Jobs from the demands of the matrix, so that tests can render their pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import observed as o

from rlt_api.blocks.resources import Resources
from rlt_api.rules.shared_memory import size_shared_memory
from rlt_api.status.job_status import RuntimeSnapshot
from rlt_core.fabric.demand import Demand
from rlt_core.job import Job

POD = Resources(cpu="32", memory=str(2**40))


def job_of(demand: Demand) -> Job:
    """Build a job with this demand and pods of 1 TiB."""
    limits = dict.fromkeys(demand.other_resources, 1)
    container: dict[str, Any] = {"name": "ray-worker", "resources": {"limits": limits}}
    pod: dict[str, Any] = {"containers": [container]}
    if _claims(demand):
        pod["resourceClaims"] = [{"name": "rdma", "resourceClaimTemplateName": "rdma-adapters"}]
        container["resources"]["claims"] = [{"name": "rdma"}]
    group = {
        "replicas": demand.workers,
        "resources": POD.to_json(),
        "accelerator": {"resourceName": demand.resource, "count": demand.count} if demand.resource else None,
        "nodeSelector": dict(demand.node_selector or {}),
        "tolerations": [toleration.to_json() for toleration in demand.tolerations],
        "podTemplate": {"spec": pod} if demand.other_resources or _claims(demand) else None,
    }
    network = {
        "require": demand.require,
        "profile": demand.profile,
        "attach": demand.attach,
        "socketInterface": demand.socket_interface,
        "hcas": list(demand.hcas),
    }
    spec: dict[str, Any] = {
        "framework": {"type": "command", "command": ["train"]},
        "runtimeRef": {"name": "gpus"},
        "cluster": {"image": "registry.example/trainer", "workers": [_given(group)], "env": _env(demand.user_env)},
        "network": _given(network),
    }
    runtime: dict[str, Any] = {"defaults": {"cluster": {"env": _env(demand.admin_env)}}}
    if demand.declared:
        runtime["nodePools"] = [{"name": "pool", **{key: group[key] for key in ("resources", "accelerator")}}]
    return o.job(spec, runtime=RuntimeSnapshot(name="gpus", generation=1, spec=runtime))


def expected_demand(demand: Demand) -> Demand:
    """The demand with the fields that a job always sets, without admin variables that the user overrides."""
    own = {name for name, _ in demand.user_env}
    return replace(
        demand,
        admin_env=tuple((name, value) for name, value in demand.admin_env if name not in own),
        node_selector=dict(demand.node_selector or {}),
        shared_memory=size_shared_memory(POD, accelerators=demand.count),
        has_network_annotation=False,
        has_resource_claims=_claims(demand),
    )


def _claims(demand: Demand) -> bool:
    return demand.attach == "dra" and demand.has_resource_claims


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _env(variables: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables]
