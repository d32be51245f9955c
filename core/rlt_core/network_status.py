"""FabricDecision and accelerators of a job: decided from its nodes before the Ray cluster is made, and kept in the status.

What is kept there is what the pods are made from. It is decided anew only after the cluster was released.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.conditions import Reason
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import NetworkAttachment, NetworkRefusal, NetworkStatus, NetworkVariable
from rlt_core.fabric import aliases
from rlt_core.fabric.candidates import find_candidates, unhealthy_reason
from rlt_core.fabric.decision import FabricDecision, decide_fabric
from rlt_core.fabric.demand import build_demands
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job, list_excluded_nodes

MAX_LIST_LENGTH = 32
"""Entries of a list that the status keeps: a fleet of many kinds has many more witnesses."""


def build_network_status(job: Job, spec: RLTrainingJobSpec, nodes: Sequence[Node]) -> NetworkStatus:
    """What the job's pods get on these nodes, with reasons. Those that were at fault before take none."""
    excluded = list_excluded_nodes(job)
    nodes = [node for node in nodes if node.name not in excluded]
    demands = build_demands(spec, job.given, job.runtime.spec if job.runtime else None)
    found = decide_fabric(nodes, demands)
    selected = {node.name: node for demand in demands for node in find_candidates(nodes, demand).selected}
    attach = found.settings.attach
    refusal = found.rejections[0] if found.rejections else None
    return NetworkStatus(
        profile=found.profile,
        fabric=found.fabric,
        vendor=found.vendor,
        agree=found.agree,
        candidates=len(found.candidates),
        accelerators_per_node=found.gpus_per_node,
        refused=NetworkRefusal(**refusal.to_json()) if refusal else None,
        evidence=_truncate(found.evidence),
        env=[NetworkVariable(**setting.to_json()) for setting in found.settings.env],
        overridden_by_user=list(found.settings.overridden_by_user),
        attach=NetworkAttachment(
            mode=attach.mode,
            resources=dict(attach.resources),
            networks=_list_gke_networks(found),
            compute_domain=attach.mode == "dra" and found.settings.compute_domain,
            mounts=dict(found.settings.mounts),
            capabilities=list(found.settings.capabilities),
            supplemental_groups=list(found.settings.groups),
        ),
        avoided=sorted({*excluded, *(name for name, node in selected.items() if unhealthy_reason(node))}),
        warnings=_truncate(found.warnings),
    )


def blocks_start(network: NetworkStatus, spec: RLTrainingJobSpec) -> bool:
    """Whether the job waits rather than start like this.

    Nodes that are ill or tainted just now are the scheduler's business, which says so itself, and pods that it finds no
    node for are what a cluster autoscaler acts on; but a job that requires RDMA waits for nodes that have it.
    """
    if network.refused is None:
        return False
    return network.refused.code != Reason.NO_CANDIDATE or spec.network.require == "rdma"


def needs_decision(job: Job) -> bool:
    """Whether the job's nodes are to be looked at before its Ray cluster can be made."""
    network, spec = job.status.network, job.spec
    return spec is not None and (network is None or blocks_start(network, spec))


def _list_gke_networks(found: FabricDecision) -> list[str]:
    """GKE names the resource of each additional network after it."""
    if found.settings.network != "gke-interfaces":
        return []
    return [match[1] for name, _ in found.settings.attach.resources if (match := aliases.GKE_NETWORK.match(name))]


def _truncate(texts: Sequence[str]) -> list[str]:
    if len(texts) <= MAX_LIST_LENGTH:
        return list(texts)
    return [*texts[: MAX_LIST_LENGTH - 1], f"and {len(texts) - MAX_LIST_LENGTH + 1} more"]
