"""status.network: the fabric decision of a job. The pods are built from it.

The operator decides before it creates the Ray cluster, and again only after the cluster is released.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlt_api.findings.masking import MASK, is_secret
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.conditions import Reason
from rlt_api.status.network import NetworkAttachment, NetworkRejection, NetworkStatus, NetworkVariable
from rlt_core.fabric import aliases
from rlt_core.fabric.candidates import find_candidates
from rlt_core.fabric.decision import FabricDecision, decide_fabric
from rlt_core.fabric.demand import Demand, build_demands
from rlt_core.fabric.nodes import Node
from rlt_core.job import Job, list_excluded_nodes

MAX_DECISIONS = 256
"""Maximum number of decisions in memory."""
MAX_LIST_LENGTH = 32
"""Maximum number of entries of a list in the status: a fleet with many kinds of nodes has much more evidence."""


class _LatestDecisions:
    """The decisions on the latest nodes. Jobs with equal demands that wait for nodes share one."""

    def __init__(self) -> None:
        self._nodes: Sequence[Node] = ()
        self._found: dict[str, tuple[FabricDecision, frozenset[str]]] = {}

    def decide(self, nodes: Sequence[Node], demands: Sequence[Demand]) -> tuple[FabricDecision, frozenset[str]]:
        """The decision, and the names of the selected nodes that are unhealthy."""
        if nodes is not self._nodes or not isinstance(nodes, tuple) or len(self._found) >= MAX_DECISIONS:
            self._nodes = nodes
            self._found = {}
        key = repr(demands)
        if key not in self._found:
            selected = (node for demand in demands for node in find_candidates(nodes, demand).selected)
            unhealthy = frozenset(node.name for node in selected if node.unhealthy_reason)
            self._found[key] = (decide_fabric(nodes, demands), unhealthy)
        return self._found[key]


_LATEST = _LatestDecisions()


def build_network_status(job: Job, spec: RLTrainingJobSpec, nodes: Sequence[Node]) -> NetworkStatus:
    """Build status.network for these nodes, without the nodes that caused earlier failures."""
    excluded = list_excluded_nodes(job)
    if excluded:
        nodes = [node for node in nodes if node.name not in excluded]
    demands = build_demands(spec, job.submitted_spec, job.runtime.accelerators if job.runtime else ())
    decision, unhealthy = _LATEST.decide(nodes, demands)
    attach = decision.settings.attach
    rejection = decision.rejections[0] if decision.rejections else None
    return NetworkStatus(
        profile=decision.profile,
        fabric=decision.fabric,
        vendor=decision.vendor,
        agree=decision.agree,
        candidates=len(decision.candidates),
        accelerators_per_node=decision.gpus_per_node,
        rejection=NetworkRejection(**rejection.to_json()) if rejection else None,
        evidence=_truncate(decision.evidence),
        env=[NetworkVariable(**_mask(setting.to_json())) for setting in decision.settings.env],
        overridden_by_user=list(decision.settings.overridden_by_user),
        attach=NetworkAttachment(
            mode=attach.mode,
            resources=dict(attach.resources),
            networks=_list_gke_networks(decision),
            compute_domain=attach.mode == "dra" and decision.settings.compute_domain,
            mounts=dict(decision.settings.mounts),
            capabilities=list(decision.settings.capabilities),
            supplemental_groups=list(decision.settings.groups),
        ),
        excluded_nodes=sorted({*excluded, *unhealthy}),
        warnings=_truncate(decision.warnings),
    )


def blocks_start(network: NetworkStatus, spec: RLTrainingJobSpec) -> bool:
    """Whether the job waits instead of starting.

    NoCandidate does not hold a job: the scheduler reports unhealthy and tainted nodes, and a cluster autoscaler acts on
    pending pods. But a job that requires RDMA waits for nodes with RDMA.
    """
    if network.rejection is None:
        return False
    return network.rejection.code != Reason.NO_CANDIDATE or spec.network.require == "rdma"


def needs_decision(job: Job) -> bool:
    """Whether the operator must read the nodes before it can create the Ray cluster."""
    network = job.status.network
    spec = job.spec
    return spec is not None and (network is None or blocks_start(network, spec))


def _mask(variable: dict[str, str]) -> dict[str, str]:
    """Mask a secret of the user. The pods get their own variables from the spec, and not from the status."""
    if variable["source"].startswith(("user", "RLRuntime")) and is_secret(variable["name"], variable["value"]):
        return {**variable, "value": MASK}
    return variable


def _list_gke_networks(decision: FabricDecision) -> list[str]:
    """Names of the additional networks, from the names of their resources on GKE."""
    if decision.settings.network != "gke-interfaces":
        return []
    return [match[1] for name, _ in decision.settings.attach.resources if (match := aliases.GKE_NETWORK.match(name))]


def _truncate(texts: Sequence[str]) -> list[str]:
    if len(texts) <= MAX_LIST_LENGTH:
        return list(texts)
    return [*texts[: MAX_LIST_LENGTH - 1], f"and {len(texts) - MAX_LIST_LENGTH + 1} more"]
