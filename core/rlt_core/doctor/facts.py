"""What `rlt doctor` reads from a cluster: one frozen record. Any part of it can be forbidden or missing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rlt_api.model import quantity_value
from rlt_core.job import Manifest


@dataclass(frozen=True)
class Reading:
    """The response to one request. `items` is empty if it has failed."""

    items: tuple[Manifest, ...] = ()
    forbidden: str | None = None
    """The right that the user lacks, such as "list nodes"."""
    failed: str | None = None
    """Why the API server did not send the objects, for any other reason."""
    installed: bool = True
    """False: the API server does not have the resource."""
    complete: bool = True
    """False: there are more objects than were read."""

    @property
    def known(self) -> bool:
        """Whether the cluster's state can be derived from `items`."""
        return self.forbidden is None and self.failed is None


NOTHING = Reading()


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster, for a user of one namespace. The fields are in the order of the requests."""

    namespace: str
    client_version: str
    """The version of the command line."""
    now: datetime
    server_version: str
    """gitVersion of the API server."""
    kuberay_crd: Reading = NOTHING
    job_crd: Reading = NOTHING
    runtime_crd: Reading = NOTHING
    deployments: Reading = NOTHING
    """KubeRay's and rlt's Deployments by their labels, in all namespaces."""
    leases: Reading = NOTHING
    """The Leases with the name of the operator's, in all namespaces."""
    shard_leases: Reading = NOTHING
    """The Leases of the operator's shards, in all namespaces."""
    webhooks: Reading = NOTHING
    """All ValidatingWebhookConfigurations."""
    endpoint_slices: Reading = NOTHING
    """EndpointSlices of rlt's webhook, in all namespaces."""
    nodes: Reading = NOTHING
    pods: Reading = NOTHING
    """Pods that have not ended, in all namespaces."""
    resource_slices: Reading = NOTHING
    """Devices of DRA drivers."""
    attachments: Reading = NOTHING
    """The NetworkAttachmentDefinitions of the namespace."""
    storage_classes: Reading = NOTHING
    volume_claims: Reading = NOTHING
    """The PersistentVolumeClaims of the namespace."""
    runtimes: Reading = NOTHING
    local_queues: Reading = NOTHING
    """Kueue's LocalQueues of the namespace."""
    quotas: Reading = NOTHING
    """The ResourceQuotas of the namespace."""
    service_account: Reading = NOTHING
    """The namespace's ServiceAccount `default`, which the pods of a job use."""
    events: Reading = NOTHING
    """Warning events of pods in the namespace."""
    daemon_sets: Reading = NOTHING
    """All DaemonSets."""


def reduce_node(node: Manifest) -> Manifest:
    """The parts of a node that are evaluated. A node with its images has up to 20 KB."""
    status = node.get("status") or {}
    metadata = node["metadata"]
    return {
        "kind": "Node",
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}},
        "spec": {key: value for key, value in (node.get("spec") or {}).items() if key != "podCIDRs"},
        "status": {key: status.get(key) for key in ("allocatable", "conditions", "nodeInfo")},
    }


def reduce_pod(pod: Manifest) -> Manifest:
    """The node of a pod and what it requests of each extended resource. The scheduler counts ended pods no more."""
    spec = pod.get("spec") or {}
    containers = [_list_requests(each) for each in spec.get("containers") or []]
    starts = [_list_requests(each) for each in spec.get("initContainers") or []]
    names = {name for each in (*containers, *starts) for name in each}
    requests = {
        name: max(sum(each.get(name, 0) for each in containers), *(each.get(name, 0) for each in starts), 0)
        for name in names
    }
    return {"node": spec.get("nodeName"), "requests": requests}


def _list_requests(container: Manifest) -> dict[str, int]:
    """Requests of extended resources, which equal their limits: names with a domain."""
    resources = container.get("resources") or {}
    requested = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: int(quantity_value(str(amount))) for name, amount in requested.items() if "/" in name}
