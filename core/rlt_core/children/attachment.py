"""The part of a worker pod template that attaches the pod to the fabric, from status.network."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import count

from rlt_api.blocks.cluster import WorkerGroup
from rlt_api.spec.job_spec import RLTrainingJobSpec
from rlt_api.status.network import NetworkAttachment, NetworkStatus
from rlt_core import names
from rlt_core.fabric.settings import Attachment
from rlt_core.job import Job, Manifest

DECLARED_PORTS = {
    "dashboard-agent-listen-port": "host-agent",
    "metrics-export-port": "host-metrics",
    "dashboard-agent-grpc-port": "host-agent-grpc",
    "runtime-env-agent-port": "host-env-agent",
    "node-manager-port": "host-raylet",
    "object-manager-port": "host-objects",
}
"""The fixed ports of a Ray node, by `ray start` parameter, with their names in the container.
https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations"""
HOST_PORTS = range(20000, 22999, len(DECLARED_PORTS))
"""The first of DECLARED_PORTS of a job on the host network."""
WORKER_PORTS = range(23000, 30000, 1000)
"""The first port of a job's Ray processes on the host network: one port for each process on a node. All ports are below
the ports of Kubernetes services (from 30000) and of outgoing connections in Linux (net.ipv4.ip_local_port_range)."""
CHANNEL = "compute-domain-channel"
"""Name of the resourceClaim in the pod."""


def get_network(job: Job) -> NetworkStatus:
    """status.network. It is set before any pod is built."""
    assert job.status.network
    return job.status.network


def get_attachment(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> NetworkAttachment:
    """How the pods of the group attach to the fabric. A group without accelerators attaches only if no
    group has any.
    """
    network = get_network(job)
    security = spec.security
    if group.accelerator or network.vendor == "none":
        return network.attach
    requested = {"IPC_LOCK": security.ipc_lock, "SYS_PTRACE": security.ptrace}
    capabilities = [name for name, is_requested in requested.items() if is_requested]
    return NetworkAttachment(mode="podNetwork", capabilities=capabilities)


def build_attachment_overlay(job: Job, spec: RLTrainingJobSpec, group: WorkerGroup) -> Manifest:
    """Build the part of the group's pod template that attaches to the fabric."""
    attach = get_attachment(job, spec, group)
    container = {
        "name": "ray-worker",
        "securityContext": _build_security_context(spec, attach),
        **_build_devices(attach, group, get_network(job).accelerators_per_node),
        **_build_mounts(attach),
        **_build_ports(job, attach),
    }
    pod: Manifest = {"containers": [container], **build_group_overlay(spec, attach)}
    if attach.mounts:
        hosts = enumerate(attach.mounts)
        pod["volumes"] = [{"name": f"host-{index}", "hostPath": {"path": path}} for index, path in hosts]
    if attach.mode == "hostNetwork":
        pod |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if attach.compute_domain:
        pod["resourceClaims"] = [{"name": CHANNEL, "resourceClaimTemplateName": names.compute_domain(job.name)}]
    return {"metadata": _build_interface_annotations(attach), "spec": pod}


def build_group_overlay(spec: RLTrainingJobSpec, attach: NetworkAttachment) -> Manifest:
    """Build the part of a pod with its supplementary groups: the user's, and the groups that open AMD's devices."""
    groups = sorted({*spec.security.supplemental_groups, *attach.supplemental_groups})
    return {"securityContext": {"supplementalGroups": groups}} if groups else {}


def choose_host_ports(job: Job, attach: NetworkAttachment) -> dict[str, int]:
    """Choose the fixed ports of a worker on the host network, by `ray start` parameter. Empty on the pod network.

    The ports depend on the job. The container declares the ports of DECLARED_PORTS, so that the scheduler places no two
    workers of a job on one node. NCCL, Gloo and the rendezvous of torch.distributed choose their own ports.
    """
    if attach.mode != "hostNetwork":
        return {}
    digest = int(sha256(job.uid.encode()).hexdigest(), 16)
    fixed = zip(DECLARED_PORTS, count(HOST_PORTS[digest % len(HOST_PORTS)]), strict=False)
    first = WORKER_PORTS[digest % len(WORKER_PORTS)]
    return {**dict(fixed), "min-worker-port": first, "max-worker-port": first + WORKER_PORTS.step - 1}


def _build_ports(job: Job, attach: NetworkAttachment) -> Manifest:
    ports = choose_host_ports(job, attach)
    declared = [
        {"name": name, "containerPort": ports[parameter], "protocol": "TCP"}
        for parameter, name in DECLARED_PORTS.items()
        if parameter in ports
    ]
    return {"ports": declared} if declared else {}


def _build_security_context(spec: RLTrainingJobSpec, attach: NetworkAttachment) -> Manifest:
    """The privileges that the fabric or spec.security request."""
    if spec.security.privileged:
        return {"privileged": True, "allowPrivilegeEscalation": None, "capabilities": None}
    return {"capabilities": {"add": list(attach.capabilities)}} if attach.capabilities else {}


def _build_devices(attach: NetworkAttachment, group: WorkerGroup, accelerators_per_node: int) -> Manifest:
    """The extended resources of the fabric: all of a node's, or the share of a worker on a part of a node."""
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
    """Host folders with the libraries of the fabric, mounted read-only."""
    paths = enumerate(attach.mounts.values())
    mounts = [{"name": f"host-{index}", "mountPath": path, "readOnly": True} for index, path in paths]
    return {"volumeMounts": mounts} if mounts else {}


def _build_interface_annotations(attach: NetworkAttachment) -> Manifest:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods"""
    if not attach.networks:
        return {}
    order = enumerate(["default", *attach.networks])
    interfaces = [{"interfaceName": f"eth{index}", "network": name} for index, name in order]
    annotations = {
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": json.dumps(interfaces),
    }
    return {"annotations": annotations}
