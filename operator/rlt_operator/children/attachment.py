"""What a worker pod gets of its nodes' network: the part of its template that makes status.network come true."""

from __future__ import annotations

import json
from hashlib import sha256

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import NetworkStatus
from rlt_operator import names
from rlt_operator.fabric.settings import Attachment
from rlt_operator.observation import Job, Manifest

HOST_PORTS = range(20000, 29998, 2)
"""Of the first port of a job on the host network, below those that Linux gives to outgoing connections (32768 and up:
net.ipv4.ip_local_port_range) and Kubernetes to services (30000 and up)."""
CHANNEL = "compute-domain-channel"


def network_of(job: Job) -> NetworkStatus:
    """What was decided. No pod is made before that."""
    assert job.status.network
    return job.status.network


def attachment(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    """A part of the group's pod template, to be laid over the rest."""
    network = network_of(job)
    container = {
        "name": "ray-worker",
        "securityContext": _privileges(spec, network),
        **_devices(network, group),
        **_mounts(network),
        **_declared_ports(job, network),
    }
    groups = sorted({*spec.security.supplemental_groups, *network.attach.supplemental_groups})
    pod: Manifest = {"containers": [container]}
    if groups:
        pod["securityContext"] = {"supplementalGroups": groups}
    if network.attach.mounts:
        hosts = enumerate(network.attach.mounts)
        pod["volumes"] = [{"name": f"host-{index}", "hostPath": {"path": path}} for index, path in hosts]
    if network.attach.mode == "hostNetwork":
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if network.attach.compute_domain:
        pod["resourceClaims"] = [{"name": CHANNEL, "resourceClaimTemplateName": names.compute_domain(job.name)}]
    return {"metadata": _interfaces(network), "spec": pod}


def host_ports(job: Job) -> dict[str, int]:
    """Ray's fixed ports of a worker on the host network, by the name of their `ray start` parameter; else none.

    Each job has its own, and they are declared as ports of the container: the scheduler puts no two pods with the same
    on one node. Ray takes free ones for everything else.
    """
    if network_of(job).attach.mode != "hostNetwork":
        return {}
    first = HOST_PORTS[int(sha256(job.uid.encode()).hexdigest(), 16) % len(HOST_PORTS)]
    return {"dashboard-agent-listen-port": first, "metrics-export-port": first + 1}


def _declared_ports(job: Job, network: NetworkStatus) -> Manifest:
    ports = host_ports(job)
    names_of = {"dashboard-agent-listen-port": "host-agent", "metrics-export-port": "host-metrics"}
    declared = [{"name": names_of[name], "containerPort": port, "protocol": "TCP"} for name, port in ports.items()]
    return {"ports": declared} if declared else {}


def _privileges(spec: RLTrainingJobSpec, network: NetworkStatus) -> Manifest:
    """Nothing, but for what fabric or spec.security ask for."""
    if spec.security.privileged:
        return {"privileged": True, "allowPrivilegeEscalation": None, "capabilities": None}
    added = network.attach.capabilities
    return {"capabilities": {"add": list(added)}} if added else {}


def _devices(network: NetworkStatus, group: WorkerGroup) -> Manifest:
    """The fabric's extended resources: all that a whole node has for one worker, or the worker's part."""
    if group.accelerator is None:
        return {}
    whole = Attachment(network.attach.mode, tuple(network.attach.resources.items()))
    share = whole.share(group.accelerator.count, network.accelerators_per_node)
    amounts = {name: str(count) for name, count in share.items()}
    resources: Manifest = {"requests": amounts, "limits": dict(amounts)} if amounts else {}
    if network.attach.compute_domain:
        resources["claims"] = [{"name": CHANNEL}]
    return {"resources": resources} if resources else {}


def _mounts(network: NetworkStatus) -> Manifest:
    """Folders of the host with the fabric's own libraries, which no worker may write."""
    paths = enumerate(network.attach.mounts.values())
    mounts = [{"name": f"host-{index}", "mountPath": path, "readOnly": True} for index, path in paths]
    return {"volumeMounts": mounts} if mounts else {}


def _interfaces(network: NetworkStatus) -> Manifest:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods"""
    if not network.attach.networks:
        return {}
    order = enumerate(["default", *network.attach.networks])
    interfaces = [{"interfaceName": f"eth{index}", "network": name} for index, name in order]
    named = {"networking.gke.io/default-interface": "eth0", "networking.gke.io/interfaces": json.dumps(interfaces)}
    return {"annotations": named}
