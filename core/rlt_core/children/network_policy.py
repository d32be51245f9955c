"""The NetworkPolicy of a job: who can open connections to its pods. Connections of the pods themselves are not limited.

Ray, NCCL and vLLM use ports that are not known in advance, so that all ports are open between the pods of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlt_core import names
from rlt_core.children.ownership import build_metadata
from rlt_core.job import Job, Manifest
from rlt_pod.report.driver_report import METRICS_PORT

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Label that the API server sets on each namespace to its name."""
OPERATOR_LABELS = {"app.kubernetes.io/name": "rlt-operator"}
"""Labels of the operator's pods, from its chart."""


@dataclass(frozen=True)
class NetworkAccess:
    """Who reaches the pods of jobs, in addition to the pods of the same job."""

    operator_namespace: str
    """The namespace of the operator, whose pods reach Ray's job API and the driver."""
    metrics_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods scrape the metrics of Ray and the driver."""
    cidrs: tuple[str, ...] = ()
    """Addresses that reach Ray's job API and the driver, such as the API server's, whose proxy `rlt` uses."""


def build_network_policy(job: Job, access: NetworkAccess) -> Manifest:
    """Build the NetworkPolicy of a job's pods."""
    operator = {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: access.operator_namespace}},
        "podSelector": {"matchLabels": dict(OPERATOR_LABELS)},
    }
    ingress: list[Manifest] = [
        {"from": [{"podSelector": {"matchLabels": names.labels(job.name)}}]},
        {
            "from": [operator, *({"ipBlock": {"cidr": cidr}} for cidr in access.cidrs)],
            "ports": _build_ports(names.DASHBOARD_PORT, METRICS_PORT),
        },
    ]
    if access.metrics_namespaces:
        names_of = {"key": NAMESPACE_LABEL, "operator": "In", "values": list(access.metrics_namespaces)}
        scrapers = {"namespaceSelector": {"matchExpressions": [names_of]}}
        ingress.append({"from": [scrapers], "ports": _build_ports(names.RAY_METRICS_PORT, METRICS_PORT)})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(job, names.network_policy(job.name)),
        "spec": {
            "podSelector": {"matchLabels": names.labels(job.name)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def uses_host_network(ray_cluster: Manifest) -> bool:
    """Whether pods of the RayCluster use the network of their node.

    They have the addresses of nodes, which no NetworkPolicy selects by labels: the policy would separate such workers
    from their head.
    """
    spec = ray_cluster["spec"]
    templates: Sequence[Manifest] = [group["template"] for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]]
    return any(template["spec"].get("hostNetwork") for template in templates)


def _build_ports(*ports: int) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports]
