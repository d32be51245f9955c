"""What a worker pod gets of its nodes' network: the part of its template that makes status.network come true."""

from __future__ import annotations

import json
from hashlib import sha256

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.spec import RLTrainingJobSpec
from rlt_api.status import NetworkAttachment, NetworkStatus
from rlt_core import names
from rlt_core.fabric.settings import Attachment
from rlt_core.job import Job, Manifest

HOST_PORTS = range(20000, 29998, 2)
"""Of the first port of a job on the host network, below those that Linux gives to outgoing connections (32768 and up:
net.ipv4.ip_local_port_range) and Kubernetes to services (30000 and up)."""
CHANNEL = "compute-domain-channel"


def get_network(job: Job) -> NetworkStatus:
    """What was decided. No pod is made before that."""
    assert job.status.network
    return job.status.network


def get_attachment(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> NetworkAttachment:
    """How the group's pods get at the fabric. Beside groups with accelerators one without takes no part in it."""
    network, security = get_network(job), spec.security
    if group.accelerator or network.vendor == "none":
        return network.attach
    chosen = [name for name, asked in (("IPC_LOCK", security.ipc_lock), ("SYS_PTRACE", security.ptrace)) if asked]
    return NetworkAttachment(mode="podNetwork", capabilities=chosen)


def build_attachment_overlay(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    """A part of the group's pod template, to be laid over the rest."""
    attach = get_attachment(job, spec, group)
    container = {
        "name": "ray-worker",
        "securityContext": _build_security_context(spec, attach),
        **_build_devices(attach, group, get_network(job).accelerators_per_node),
        **_build_mounts(attach),
        **_build_ports(job, attach),
    }
    groups = sorted({*spec.security.supplemental_groups, *attach.supplemental_groups})
    pod: Manifest = {"containers": [container]}
    if groups:
        pod["securityContext"] = {"supplementalGroups": groups}
    if attach.mounts:
        hosts = enumerate(attach.mounts)
        pod["volumes"] = [{"name": f"host-{index}", "hostPath": {"path": path}} for index, path in hosts]
    if attach.mode == "hostNetwork":
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if attach.compute_domain:
        pod["resourceClaims"] = [{"name": CHANNEL, "resourceClaimTemplateName": names.compute_domain(job.name)}]
    return {"metadata": _build_interface_annotations(attach), "spec": pod}


def choose_host_ports(job: Job, attach: NetworkAttachment) -> dict[str, int]:
    """Ray's fixed ports of a worker on the host network, by the name of their `ray start` parameter; else none.

    Each job has its own, and they are declared as ports of the container: the scheduler puts no two pods with the same
    on one node. Ray takes free ones for everything else.
    """
    if attach.mode != "hostNetwork":
        return {}
    first = HOST_PORTS[int(sha256(job.uid.encode()).hexdigest(), 16) % len(HOST_PORTS)]
    return {"dashboard-agent-listen-port": first, "metrics-export-port": first + 1}


def _build_ports(job: Job, attach: NetworkAttachment) -> Manifest:
    ports = choose_host_ports(job, attach)
    names_of = {"dashboard-agent-listen-port": "host-agent", "metrics-export-port": "host-metrics"}
    declared = [{"name": names_of[name], "containerPort": port, "protocol": "TCP"} for name, port in ports.items()]
    return {"ports": declared} if declared else {}


def _build_security_context(spec: RLTrainingJobSpec, attach: NetworkAttachment) -> Manifest:
    """Nothing, but for what fabric or spec.security ask for."""
    if spec.security.privileged:
        return {"privileged": True, "allowPrivilegeEscalation": None, "capabilities": None}
    return {"capabilities": {"add": list(attach.capabilities)}} if attach.capabilities else {}


def _build_devices(attach: NetworkAttachment, group: WorkerGroup, accelerators_per_node: int) -> Manifest:
    """The fabric's extended resources: all that a whole node has for one worker, or the worker's part."""
    if group.accelerator is None:
        return {}
    whole = Attachment(attach.mode, tuple(attach.resources.items()))
    share = whole.share(group.accelerator.count, accelerators_per_node)
    amounts = {name: str(count) for name, count in share.items()}
    resources: Manifest = {"requests": amounts, "limits": dict(amounts)} if amounts else {}
    if attach.compute_domain:
        resources["claims"] = [{"name": CHANNEL}]
    return {"resources": resources} if resources else {}


def _build_mounts(attach: NetworkAttachment) -> Manifest:
    """Folders of the host with the fabric's own libraries, which no worker may write."""
    paths = enumerate(attach.mounts.values())
    mounts = [{"name": f"host-{index}", "mountPath": path, "readOnly": True} for index, path in paths]
    return {"volumeMounts": mounts} if mounts else {}


def _build_interface_annotations(attach: NetworkAttachment) -> Manifest:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods"""
    if not attach.networks:
        return {}
    order = enumerate(["default", *attach.networks])
    interfaces = [{"interfaceName": f"eth{index}", "network": name} for index, name in order]
    named = {"networking.gke.io/default-interface": "eth0", "networking.gke.io/interfaces": json.dumps(interfaces)}
    return {"annotations": named}
